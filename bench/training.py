#!/usr/bin/env python3
"""Training steps of bench/training.cpp beside PyTorch's, eager and compiled: python3 bench/training.py build/release [rounds].

Needs torch (pip install torch==2.13.0). Losses of the first steps are compared before times are shown; rounds alternate between the libraries."""
import math
import statistics
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, TIME, HEADS, VOCABULARY, LAYERS = 128, 128, 4, 256, 4


def numbers(sizes, seed, scale):
    n = math.prod(sizes)
    i = torch.arange(n, dtype=torch.int64)
    return (scale * (((i * 2654435761 + seed * 40503) % 1009).double() / 1009 - 0.5)).float().view(sizes)


def labels(sizes, below):
    return (torch.arange(math.prod(sizes)) * 7919 % below).view(sizes)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.c, self.d = nn.Linear(32 * 7 * 7, 64), nn.Linear(64, 10)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.b(F.max_pool2d(F.relu(self.a(x)), 2))), 2)
        return self.d(F.relu(self.c(h.flatten(1))))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (t.reshape(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Parameter(torch.empty(VOCABULARY, WIDTH)), nn.Parameter(torch.empty(TIME, WIDTH))
        for i in range(LAYERS):
            setattr(self, f"block{i}", Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        h = F.embedding(x, self.token) + self.place
        for i in range(LAYERS):
            h = getattr(self, f"block{i}")(h)
        return self.head(self.norm(h)).flatten(0, 1)


def torch_step(model, compiled):
    if model == "gpt":
        net, x, y = Gpt(), labels([8, TIME], VOCABULARY), labels([8 * TIME], VOCABULARY - 1)
    elif model == "lstm":
        net, x, y = Lstm(), numbers([64, 32, 64], 99, 2), labels([32], 10)
    else:
        net, x = (Mlp(), numbers([64, 784], 99, 2)) if model == "mlp" else (Cnn(), numbers([64, 1, 28, 28], 99, 2))
        y = labels([64], 10)
    seed = 0
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.dim() > 1:
                seed += 1
                p.copy_(numbers(list(p.shape), seed, 2 / math.sqrt(p.numel() / p.shape[0])))
            else:
                p.fill_(1 if name.endswith("weight") else 0)
    adam = torch.optim.AdamW(net.parameters(), 1e-3)
    forward = torch.compile(net) if compiled else net
    update = torch.compile(adam.step) if compiled else adam.step

    def step():
        adam.zero_grad()
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        update()
        return loss.detach()
    return step


def torch_side(model, mode, steps):
    step = torch_step(model, mode == "compiled")
    losses = [step().item() for _ in range(5)]
    for _ in range(5):
        step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begin))
    print(" ".join(f"{x:.6f}" for x in losses), statistics.median(times), sep="\n")


def main():
    build, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print(f"{'model':6s} {'mode':9s} {'Grapnel ms':>11s} {'PyTorch ms':>11s} {'ratio':>6s}")
    for model, steps in ("mlp", 200), ("cnn", 60), ("lstm", 30), ("gpt", 15):
        best = {}
        for mode in "eager", "compiled":
            ours, theirs = [], []
            for _ in range(rounds):
                outputs = []
                for command, times in ([f"{build}/bench/bench_training"], ours), ([sys.executable, __file__, "--torch"], theirs):
                    run = subprocess.run(command + [model, mode, str(steps)], capture_output=True, text=True, check=True)
                    first, last = run.stdout.strip().splitlines()[-2:]
                    outputs.append([float(v) for v in first.split()])
                    times.append(float(last.split()[0]))
                for a, b in zip(*outputs):
                    if not math.isclose(a, b, rel_tol=2e-3):
                        sys.exit(f"{model}, {mode}: the losses differ: {outputs}")
            a, b = min(ours), min(theirs)
            best[mode] = (a, b)
            print(f"{model:6s} {mode:9s} {a:11.3f} {b:11.3f} {b / a:5.2f}x", flush=True)
        a, b = best["compiled"][0], min(best["eager"][1], best["compiled"][1])
        print(f"{model:6s} compiled against PyTorch's best: {b / a:.2f}x", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--torch":
        torch_side(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
