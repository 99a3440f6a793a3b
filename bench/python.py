#!/usr/bin/env python3
"""What calls from Python cost, beside PyTorch where it is installed.

    python3 bench/python.py build/release [--rows TEXT] [--repeats N] [--json FILE]
    python3 bench/python.py build/release --instructions

Small tensors, so that what is measured is the way into the library and back. CPU time of this thread in ns a call: the libraries take turns, and
of all turns the median is printed, with half the distance of the quartiles behind it. What the loop itself costs is taken off. Before anything is
timed, both libraries have to give the same values. The second column is PyTorch's, with torch.compile for compiled rows.

--instructions counts those of Grapnel's rows under valgrind instead, a figure that does not depend on what else the machine does. Compiled rows are
left out there.
"""
import argparse
import array
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import timeit

HERE = pathlib.Path(__file__).resolve()
# What a row may cost, in ns.
BUDGETS = {"a + b": 90, "a + 2.0": 110, "a.sum(dim=0, keepdim=True)": 200, "w + b, recorded": 160, "a Python hook, per firing": 130, "register_hook": 400,
           "Function.apply, one op": 1200, "40 ops, compiled": 6000, "40 ops, replayed": 2500}
NODES, HOOKS = 100, 100


class Row:
    """A statement to time. `per` divides what it costs, after that of the row `minus` was taken off; `fresh` makes new objects for a turn."""

    def __init__(self, name, statement, value=None, count=20000, per=1, minus=None, fresh=None, hidden=False):
        self.name, self.statement, self.count, self.per, self.minus, self.fresh, self.hidden = name, statement, count, per, minus, fresh, hidden
        self.value = value or (lambda: None)


def rows_of(m, compiler):
    """The rows for one of the two libraries, and what their statements refer to."""
    a, b = m.tensor([1.0, 2.0, 3.0, 4.0]), m.tensor([2.0, 2.0, 2.0, 2.0])
    w = m.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    x, hooked = (m.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True) for _ in range(2))
    for _ in range(HOOKS):
        hooked.register_hook(lambda grad: grad)
    short = (w * 1.0).sum()
    chain = w
    for _ in range(NODES):
        chain = chain * 1.0
    long = (chain * 1.0).sum()
    chain = w
    for _ in range(NODES):
        chain = chain * 1.0
        chain.register_hook(lambda grad: grad)
    long_with_hooks = (chain * 1.0).sum()
    plain, with_hooks = (x * 2.0).sum(), (hooked * 2.0).sum()

    def grad_of(root, leaf):
        leaf.grad = None
        root.backward(retain_graph=True)
        return leaf.grad.tolist()

    class Double(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            return grad * 2.0

    def forty(x):
        for _ in range(20):
            x = (x + 1.0) * 0.5
        return x

    compiled, with_grad = compiler(forty), compiler(forty)

    def hook(grad):
        return grad

    space = dict(locals(), leaves=iter(()))

    def leaves(count):
        space["leaves"] = iter([m.tensor([1.0], requires_grad=True) for _ in range(count)])

    rows = [
        Row("an empty method, a.dim()", "a.dim()", lambda: a.dim()),
        Row("a + b", "a + b", lambda: (a + b).tolist()),
        Row("a + 2.0", "a + 2.0", lambda: (a + 2.0).tolist()),
        Row("a.sum(dim=0, keepdim=True)", "a.sum(dim=0, keepdim=True)", lambda: a.sum(dim=0, keepdim=True).tolist()),
        Row("w + b, recorded", "w + b", lambda: (w + b).tolist()),
        Row("backward of 2 nodes", "short.backward(retain_graph=True)", lambda: grad_of(short, w), 2000),
        Row("backward, per node", "long.backward(retain_graph=True)", lambda: grad_of(long, w), 200, NODES, "backward of 2 nodes"),
        Row("backward without hooks", "plain.backward(retain_graph=True)", lambda: grad_of(plain, x), 2000, hidden=True),
        Row("a Python hook, per firing", "long_with_hooks.backward(retain_graph=True)", lambda: grad_of(long_with_hooks, w), 200, NODES, "backward of a chain"),
        Row("backward of a chain", "long.backward(retain_graph=True)", count=200, hidden=True),
        Row("one of 100 hooks on one tensor", "with_hooks.backward(retain_graph=True)", lambda: grad_of(with_hooks, hooked), 200, HOOKS, "backward without hooks"),
        Row("register_hook", "next(leaves).register_hook(hook)", count=2000, minus="next of a list", fresh=leaves),
        Row("next of a list", "next(leaves)", count=2000, fresh=leaves, hidden=True),
        Row("w * 2.0, recorded", "w * 2.0", lambda: (w * 2.0).tolist()),
        Row("Function.apply, one op", "Double.apply(w)", lambda: Double.apply(w).tolist(), 5000),
        Row("40 ops", "forty(a)", lambda: forty(a).tolist(), 500),
        Row("40 ops, compiled", "compiled(a)", lambda: compiled(a).tolist(), 500),
        Row("40 ops, compiled, recorded", "with_grad(w)", lambda: with_grad(w).tolist(), 500),
    ]
    if hasattr(m, "CompiledBackward"):
        space["replayed"] = replayed = m.compile(forty, replay=True)
        rows.append(Row("40 ops, replayed", "replayed(a)", lambda: replayed(a).tolist(), 500))
        space["total"] = compiler(lambda t: t.sum())
        memory = array.array("f", bytes(2**20))
        space["shared"], space["stable"] = m.from_numpy(memory), m.from_numpy(memory, stable=True)
        rows.append(Row("sum of 1 MiB of an array, compiled", "total(shared)", count=100))
        rows.append(Row("the same, declared stable", "total(stable)", count=100))
    return {row.name: row for row in rows}, space


def timer(row, space):
    return timeit.Timer(row.statement, globals=space, timer=time.thread_time_ns)


def turn(row, space, clock):
    """ns a call, in one turn."""
    if row.fresh:
        row.fresh(row.count)
        clock = timer(row, space)
    return clock.timeit(row.count) / row.count


def measure(libraries, wanted, repeats):
    """For each row the ns of all turns, one list for each library."""
    clocks = [{name: timer(row, space) for name, row in rows.items()} for rows, space in libraries]
    empty = timeit.Timer("pass", timer=time.thread_time_ns)
    loops, times = [], [{name: [] for name in rows} for rows, _ in libraries]
    needed = {name for name in wanted} | {libraries[0][0][name].minus for name in wanted}
    for _ in range(repeats + 1):
        loops.append(empty.timeit(200000) / 200000)
        for name in libraries[0][0]:
            for (rows, space), clock, into in zip(libraries, clocks, times):
                if name in needed and name in rows:
                    into[name].append(turn(rows[name], space, clock[name]))
    loop = statistics.median(loops)
    return [{name: [t - loop for t in turns[1:]] for name, turns in into.items() if turns} for into in times]  # the first one warms up


def of_row(row, times):
    """The median and half the distance of the quartiles."""
    turns = times[row.name]
    if row.minus:
        turns = [(t - statistics.median(times[row.minus])) / row.per for t in turns]
    quartiles = statistics.quantiles(turns, n=4)
    return statistics.median(turns), (quartiles[2] - quartiles[0]) / 2


def of_import(package, environment):
    """CPU ms and MiB that an import costs beyond an empty interpreter: medians."""

    def run(code):
        out = [subprocess.run([sys.executable, "-c", f"import time; b = time.process_time(); {code}\n"
                               "print(time.process_time() - b, open('/proc/self/statm').read().split()[1])"],
                              check=True, capture_output=True, text=True, env=environment).stdout.split() for _ in range(7)]
        return statistics.median(float(o[0]) for o in out) * 1e3, statistics.median(int(o[1]) for o in out) * os.sysconf("SC_PAGE_SIZE") / 2**20

    with_it, without = run(f"import {package}"), run("pass")
    return with_it[0], with_it[1] - without[1]


def counted(rows):
    """Not compiled ones: valgrind has other vectors than the machine, and the thread that makes machine code would count as well."""
    return [row for row in rows.values() if "compile" not in row.statement and row.statement.split("(")[0] not in ("with_grad", "replayed", "total")]


def count_child(library):
    """Under callgrind: each call of getppid ends a part of its output."""
    rows, space = library
    for row in counted(rows):
        if row.fresh:
            row.fresh(300)
        run = timeit.Timer(row.statement, globals=space)
        run.timeit(100)
        for count in (20, 120):
            os.getppid()
            run.timeit(count)
        os.getppid()


def count_instructions(build):
    """Instructions of a call, by row: the difference of two parts, divided by that of their calls."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={folder}/part", sys.executable, str(HERE), build, "--child"],
                       check=True, capture_output=True, env=dict(os.environ, PYTHONHASHSEED="0"))
        parts = []
        for number in range(1, 1000):
            path = pathlib.Path(f"{folder}/part.{number}")
            if not path.exists():
                break
            parts.append(int(re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.M)[1]))
    return parts


def show(name, times, budget=None):
    cells = "".join(f"{median:10.0f} ±{spread:5.1f}" for median, spread in times)
    print(f"{name:36}{cells}{f'{budget:10}' if budget else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rows", default="", help="only rows whose names hold this text")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json")
    options = parser.parse_args()
    path = str((pathlib.Path(options.build) / "python").resolve())
    sys.path.insert(0, path)
    import grapnel

    libraries = [rows_of(grapnel, grapnel.compile)]
    rows = libraries[0][0]
    if options.child:
        return count_child(libraries[0])
    wanted = [name for name, row in rows.items() if options.rows in name and not row.hidden]
    if options.instructions:
        parts = count_instructions(options.build)
        calls = {row.name: (parts[3 * i + 2] - parts[3 * i + 1]) / 100 for i, row in enumerate(counted(rows))}
        print(f"{'instructions a call':36}{'Grapnel':>10}")
        for name in (name for name in wanted if name in calls):
            count = calls[name] - (calls[rows[name].minus] if rows[name].minus else 0)
            print(f"{name:36}{count / rows[name].per:10.0f}")
        return
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed, so there is nothing beside: pip install torch==2.13.0")
    else:
        torch.set_num_threads(1)
        libraries.append(rows_of(torch, torch.compile))
        for name in wanted:
            if name in libraries[1][0]:
                mine, other = rows[name].value(), libraries[1][0][name].value()
                if mine != other:
                    raise SystemExit(f"{name}: {mine} and {other} differ")
    times = measure(libraries, wanted, options.repeats)
    results = {}
    print(f"{'ns a call':36}{'Grapnel':>17}{'PyTorch' if len(libraries) > 1 else '':>17}{'budget':>10}")
    for name in wanted:
        results[name] = [of_row(lib[name], t) for (lib, _), t in zip(libraries, times) if name in lib]
        show(name, results[name], BUDGETS.get(name))
    if not options.rows:
        environment = dict(os.environ, PYTHONPATH=path)
        for package in ["grapnel"] + (["torch"] if len(libraries) > 1 else []):
            results[f"import {package}"] = ms, mib = of_import(package, environment)
            print(f"import {package}: {ms:.0f} ms of CPU time, {mib:.0f} MiB")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
