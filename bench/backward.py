#!/usr/bin/env python3
"""Backward passes of bench/backward.cpp beside PyTorch's: python3 bench/backward.py build/release [mlp optimizer chain wide] [--rounds N].

PyTorch runs eager, with torch.compile ("compile"), and with compiled autograd besides ("autograd"). Needs torch (pip install torch==2.13.0).
Results are compared before times are shown; rounds alternate between the libraries, and a figure is the median over the rounds.
Both start with an empty cache on disk, so the first round has the cold starts and the last one the warm ones."""
import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

# What is run: workload, hooks, and the modes of both libraries.
ROWS = [
    ("mlp", "none", ["eager", "backward", "step"], ["eager", "compile", "autograd"]),
    ("mlp", "hooks", ["eager", "backward", "step"], ["eager", "compile", "autograd"]),
    ("optimizer", "none", ["eager", "step"], ["eager", "compile"]),
    ("optimizer", "hooks", ["eager", "backward", "step"], ["eager", "compile", "autograd"]),
    ("chain", "none", ["eager", "backward"], ["eager", "autograd"]),
    ("chain", "hooks", ["eager", "backward"], ["eager", "autograd"]),
    ("chain", "declared", ["backward"], []),
    ("wide", "none", ["eager", "backward"], ["eager", "autograd"]),
    ("wide", "hooks", ["eager", "backward"], ["eager", "autograd"]),
]
REPEATS = {"mlp": 300, "optimizer": 15, "chain": 100, "wide": 30}


# --- the PyTorch side -------------------------------------------------------------------------------------------------------------

def torch_side(what, mode, hooks, repeats):
    import torch
    import torch.nn.functional as F

    from training import labels, numbers

    def memory_mb(name):
        with open("/proc/self/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024

    def weight(rows, columns, seed):
        return numbers([rows, columns], seed, 4 / math.sqrt(rows)).requires_grad_()

    compiled = torch.compile if mode != "eager" else (lambda fn: fn)
    torch._dynamo.config.recompile_limit = 64  # one graph for each parameter's own optimiser
    if mode == "autograd":
        torch._dynamo.config.compiled_autograd = True

    def mlp():
        w = [weight(784, 512, 1), weight(512, 512, 2), weight(512, 10, 3)]
        b = [torch.zeros(n, requires_grad=True) for n in (512, 512, 10)]
        x, y = numbers([64, 784], 99, 2), labels([64], 10)

        def clip(g):
            return g.clamp(-0.001, 0.001)
        if hooks == "hooks":
            for p in w + b:
                p.register_hook(clip)
        sgd = torch.optim.SGD(w + b, 0.1)

        def forward():
            h = x
            for i in range(3):
                h = h @ w[i] + b[i]
                if i < 2:
                    h = h.relu()
                if hooks == "hooks":
                    h.register_hook(clip)
            return F.cross_entropy(h, y)

        def forward_and_backward():
            loss = forward()
            loss.backward()
            return loss.detach()
        # Compiled autograd takes over where backward() is called inside of what torch.compile was given.
        whole, part, update = compiled(forward_and_backward), compiled(forward), compiled(sgd.step)
        last = []

        def step():
            sgd.zero_grad()
            if mode == "autograd":
                loss = whole()
            else:
                loss = part()
                loss.backward()
            update()
            last[:] = [loss.item()]
        return step, lambda: last

    def optimizer():
        w = [weight(1024, 1024, i) for i in range(16)]
        x = numbers([64, 1024], 99, 2)
        in_backward = hooks == "hooks"
        options = {"lr": 1e-4, "fused": mode == "eager"}  # fused is PyTorch's fastest update in eager mode; compiled code fuses by itself
        if in_backward:
            own = {p: torch.optim.AdamW([p], **options) for p in w}

            def update_one(p):
                own[p].step()
                own[p].zero_grad()
            for p in w:
                p.register_post_accumulate_grad_hook(update_one)
        else:
            adam = torch.optim.AdamW(w, **options)
            update = compiled(adam.step)

        def forward():
            h = x
            for p in w:
                h = h + (h @ p).tanh()
            return h.square().mean()

        def forward_and_backward():
            loss = forward()
            loss.backward()
            return loss.detach()
        whole, part = compiled(forward_and_backward), compiled(forward)
        last = []

        def step():
            if not in_backward:
                adam.zero_grad()
            if mode == "autograd":
                loss = whole()
            else:
                loss = part()
                loss.backward()
            if not in_backward:
                update()
            last[:] = [loss.item()]
        return step, lambda: last

    def chain(elements):
        torch.set_num_threads(1)
        x, g, a = numbers([elements], 1, 1).requires_grad_(), torch.ones(elements), numbers([elements], 2, 0.1) + 1
        y = x
        for i in range(1000):
            y = y.sin() if i % 2 else y * a
            if hooks == "hooks":
                y.register_hook(lambda g: g * 0.999)

        def step():
            x.grad = None
            if mode == "autograd":
                with torch._dynamo.compiled_autograd._enable(torch.compile):
                    y.backward(g, retain_graph=True)
            else:
                y.backward(g, retain_graph=True)
        return step, lambda: [x.grad.sum().item(), x.grad.abs().sum().item()]

    empty_mb = memory_mb("VmRSS:")
    step, results = {"mlp": mlp, "optimizer": optimizer, "chain": lambda: chain(4), "wide": lambda: chain(16384)}[what]()
    begin = time.perf_counter()
    step()
    first = 1e3 * (time.perf_counter() - begin)
    step()
    step()
    found = list(results())
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as peak:
        peak.write("5")
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begin))
    print(" ".join(f"{v:.9g}" for v in found))
    print(f"{statistics.median(times):.4f} ms, first {first:.1f} ms, peak {memory_mb('VmHWM:') - empty_mb:.0f} MB")


# --- side by side -----------------------------------------------------------------------------------------------------------------

def measure(command, env):
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})
    if run.returncode:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}:\n{run.stdout}{run.stderr[-2000:]}")
    numbers, times = run.stdout.strip().splitlines()[-2:]
    words = times.replace(",", "").split()
    return [float(v) for v in numbers.split()], float(words[0]), float(words[3]), float(words[6])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("what", nargs="*", default=list(REPEATS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'workload':10s} {'hooks':9s} {'library':8s} {'mode':9s} {'ms':>9s} {'cold ms':>9s} {'warm ms':>9s} {'peak MB':>8s}")
    for what, hooks, ours, theirs in ROWS:
        if what not in options.what:
            continue
        with tempfile.TemporaryDirectory() as cache:
            programs = {("Grapnel", mode): [f"{options.build}/bench/bench_backward"] for mode in ours}
            programs |= {("PyTorch", mode): [sys.executable, __file__, "--torch"] for mode in theirs}
            runs = {key: [] for key in programs}
            for _ in range(options.rounds):
                for (library, mode), program in programs.items():
                    own = os.path.join(cache, library + mode)
                    env = {"GRAPNEL_CACHE_DIR": own, "TORCHINDUCTOR_CACHE_DIR": own}
                    runs[library, mode].append(measure(program + [what, mode, hooks, str(REPEATS[what])], env))
        want = runs["Grapnel", ours[0]][0][0]
        for (library, mode), all_runs in runs.items():
            for found, *_ in all_runs:
                if library == "Grapnel" and found != want or not all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(found, want)):
                    sys.exit(f"{what}, {hooks}: {library} {mode} gave {found}, expected {want}")
            ms, peak = (statistics.median(r[i] for r in all_runs) for i in (1, 3))
            print(f"{what:10s} {hooks:9s} {library:8s} {mode:9s} {ms:9.3f} {all_runs[0][2]:9.1f} {all_runs[-1][2]:9.1f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--torch":
        torch_side(*sys.argv[2:5], int(sys.argv[5]))
    else:
        main()
