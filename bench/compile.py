#!/usr/bin/env python3
"""Rows of bench/compile.cpp beside PyTorch's, eager and compiled: python3 bench/compile.py build/release [part...].

Parts are chain, rows, gelu and mlp; all if none is named. Needs torch (pip install torch==2.13.0). Both libraries compute on the same numbers with the same
number of threads, and results are compared before times are shown. Times are the best of many runs."""
import math
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

from training import labels, numbers


def chain():
    x = numbers([1000000], 1, 1).requires_grad_()

    def loss(x):
        y = x
        for _ in range(12):
            y = (y * 1.01 + 0.02).tanh() * 0.99
        return y.sum()

    def step(loss):
        x.grad = None
        loss(x).backward()
        return x.grad
    yield "48 ops on 1M, forward and backward", loss, step


def rows():
    x, g = numbers([4096, 512], 1, 4).requires_grad_(), numbers([4096, 512], 2, 1)
    weight, bias = numbers([512], 3, 1), numbers([512], 4, 1)
    plain = x.detach()

    def softmax_rows(t):
        e = torch.exp(t - t.amax(-1, True))
        return e / e.sum(-1, True)

    def norm_rows(t):
        c = t - t.mean(-1, True)
        return c * (c.square().mean(-1, True) + 1e-5).rsqrt() * weight + bias

    def forward(fn):
        return fn(plain)

    def with_gradient(fn):
        x.grad = None
        fn(x).backward(g)
        return x.grad
    yield "softmax by hand, 4096 x 512", softmax_rows, forward
    yield "softmax by hand, with its gradient", softmax_rows, with_gradient
    yield "the op softmax, with its gradient", lambda t: torch.softmax(t, -1), with_gradient
    yield "layer norm by hand, 4096 x 512", norm_rows, forward
    yield "layer norm by hand, with its gradient", norm_rows, with_gradient
    yield "scaled and masked softmax", lambda t: softmax_rows(t * 0.125 + bias), forward


def gelu():
    x, w1, w2 = numbers([512, 256], 1, 2), numbers([256, 1024], 2, 1), numbers([1024, 256], 3, 1)
    b1, b2 = numbers([1024], 4, 1), numbers([256], 5, 1)
    yield "gelu MLP, 512 x 256 x 1024", lambda t: F.gelu(t @ w1 + b1) @ w2 + b2, lambda fn: fn(x)


def mlp():
    for hooks in False, True:
        parameters = [numbers(sizes, seed, 0.15).requires_grad_() for seed, sizes in enumerate(([784, 512], [512, 512], [512, 10]), 1)]
        parameters += [torch.zeros(n).requires_grad_() for n in (512, 512, 10)]
        x, y = numbers([64, 784], 4, 2), labels([64], 10)

        def clip(t):
            if hooks:
                t.register_hook(lambda g: g.clamp(-0.01, 0.01))
            return t

        def loss(x):
            w1, w2, w3, b1, b2, b3 = parameters
            h2 = clip(torch.relu(clip(torch.relu(x @ w1 + b1)) @ w2 + b2))
            return F.cross_entropy(clip(h2 @ w3 + b3), y)

        def step(loss):
            for p in parameters:
                p.grad = None
            value = loss(x)
            value.backward()
            with torch.no_grad():
                torch._foreach_sub_(parameters, torch._foreach_mul([p.grad for p in parameters], 0.01))
            return value.detach()
        yield "MLP step, clip hooks" if hooks else "MLP step", loss, step


PARTS = {"chain": chain, "rows": rows, "gelu": gelu, "mlp": mlp}


def best_ms(run):
    best, spent, count = math.inf, 0, 0
    while count < 7 or (spent < 250 and count < 20000):
        begin = time.perf_counter()
        run()
        took = 1e3 * (time.perf_counter() - begin)
        best, spent, count = min(best, took), spent + took, count + 1
    return best


def torch_times(fn, step):
    """Eager and compiled, in ms, and the sum of magnitudes of the first result."""
    magnitude = step(fn).double().abs().sum().item()
    torch._dynamo.reset()
    compiled = torch.compile(fn)
    for _ in range(3):
        step(compiled)
    return best_ms(lambda: step(fn)), best_ms(lambda: step(compiled)), magnitude


def main():
    build, parts = sys.argv[1], sys.argv[2:] or list(PARTS)
    print(f"{'':40s} {'Grapnel eager':>14s} {'compiled':>9s} {'PyTorch eager':>14s} {'compiled':>9s} {'best of both':>13s}")
    for part in parts:
        run = subprocess.run([f"{build}/bench/bench_compile", "--table", part], capture_output=True, text=True, check=True)
        ours = {what: [float(v) for v in values] for what, *values in (line.split("\t") for line in run.stdout.splitlines())}
        for what, fn, step in PARTS[part]():
            eager, compiled, magnitude = ours[what]
            theirs = torch_times(fn, step)
            if not math.isclose(magnitude, theirs[2], rel_tol=1e-4):
                sys.exit(f"{what}: the results differ: {magnitude} and {theirs[2]}")
            ratio = min(theirs[:2]) / min(eager, compiled)
            print(f"{what:40s} {eager:14.3f} {compiled:9.3f} {theirs[0]:14.3f} {theirs[1]:9.3f} {ratio:12.2f}x", flush=True)


if __name__ == "__main__":
    main()
