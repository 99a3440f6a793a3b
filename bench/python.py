#!/usr/bin/env python3
"""What calls from Python cost, beside PyTorch where it is installed.

    python3 bench/python.py build/release [--json FILE]

Small tensors, so that what is measured is the way into the library. CPU time of this thread in ns, the best of many runs; results are compared
before anything is timed. The second column is PyTorch's, with torch.compile for compiled rows.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

ROUNDS = 15


def best(call, count):
    """ns of one call: the best of many runs of `count` calls."""
    call()
    times = []
    for _ in range(ROUNDS):
        begin = time.thread_time_ns()
        for _ in range(count):
            call()
        times.append((time.thread_time_ns() - begin) / count)
    return min(times)


def empty_loop():
    return best(lambda: None, 20000)


def rows(m, compile):
    """(what, call, how many calls, what it gives) for one of the two libraries."""
    a, b = m.tensor([1.0, 2.0, 3.0, 4.0]), m.tensor([2.0, 2.0, 2.0, 2.0])
    w = m.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    yield "a + b", lambda: a + b, 20000, lambda: (a + b).tolist()
    yield "a + 2.0", lambda: a + 2.0, 20000, lambda: (a + 2.0).tolist()
    yield "a.sum(dim=0, keepdim=True)", lambda: a.sum(dim=0, keepdim=True), 20000, lambda: a.sum(dim=0, keepdim=True).tolist()
    yield "w + b, recorded", lambda: w + b, 20000, lambda: (w + b).tolist()

    def chain(x):
        for _ in range(10):
            x = x * 2.0
        return x

    def backward():
        w.grad = None
        chain(w).sum().backward()
        return w.grad

    yield "forward and backward of 11 ops", backward, 1000, lambda: backward().tolist()
    hooked = m.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    for _ in range(10):
        hooked.register_hook(lambda grad: grad)

    def backward_with_hooks():
        hooked.grad = None
        chain(hooked).sum().backward()
        return hooked.grad

    yield "the same with 10 hooks", backward_with_hooks, 1000, lambda: backward_with_hooks().tolist()

    def register():
        w.register_hook(print).remove()

    yield "register_hook and remove", register, 5000, lambda: None

    class Double(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            return grad * 2.0

    yield "Function.apply with one op", lambda: Double.apply(w), 2000, lambda: Double.apply(w).tolist()

    def forty(x):
        for _ in range(20):
            x = (x + 1.0) * 0.5
        return x

    compiled = compile(forty)
    with m.no_grad():
        for _ in range(20):
            compiled(a)
    yield "40 ops, uncompiled", lambda: forty(a), 1000, lambda: forty(a).tolist()
    yield "40 ops, compiled", lambda: compiled(a), 1000, lambda: compiled(a).tolist()
    if hasattr(m, "CompiledBackward"):
        replayed = m.compile(forty, replay=True)
        yield "40 ops, replayed", lambda: replayed(a), 1000, lambda: replayed(a).tolist()


def of_import(package, environment):
    """CPU seconds and MiB that an import costs beyond an empty interpreter."""

    def run(code):
        best_time, memory = 1e9, 0
        for _ in range(3):
            out = subprocess.run([sys.executable, "-c", f"import resource, time; b = time.process_time(); {code}\n"
                                  "print(time.process_time() - b, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"],
                                 check=True, capture_output=True, text=True, env=environment).stdout.split()
            best_time, memory = min(best_time, float(out[0])), int(out[1])
        return best_time, memory / 1024

    with_it, without = run(f"import {package}"), run("pass")
    return with_it[0] * 1e3, with_it[1] - without[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--json")
    options = parser.parse_args()
    path = str((pathlib.Path(options.build) / "python").resolve())
    sys.path.insert(0, path)
    import os

    import grapnel

    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        torch = None
        print("PyTorch is not installed, so there is nothing beside: pip install torch==2.13.0")
    ours = list(rows(grapnel, grapnel.compile))
    theirs = {what: row for what, *row in rows(torch, torch.compile)} if torch else {}
    loop = empty_loop()
    results = {}
    print(f"{'ns a call':34}{'Grapnel':>10}{'PyTorch':>10}")
    for what, call, count, value in ours:
        if what in theirs and theirs[what][2]() != value():
            raise SystemExit(f"{what}: {value()} and {theirs[what][2]()} differ")
        mine = best(call, count) - loop
        other = best(theirs[what][0], max(1, count // 10)) - loop if what in theirs else None
        results[what] = mine, other
        print(f"{what:34}{mine:10.0f}{'' if other is None else f'{other:10.0f}'}", flush=True)
    environment = dict(os.environ, PYTHONPATH=path)
    for package in ["grapnel"] + (["torch"] if torch else []):
        ms, mib = of_import(package, environment)
        results[f"import {package}"] = ms, mib
        print(f"import {package}: {ms:.0f} ms of CPU time, {mib:.0f} MiB")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
