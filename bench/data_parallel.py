#!/usr/bin/env python3
"""The step of bench/data_parallel.cpp in PyTorch with gloo: python3 bench/data_parallel.py [ranks]. Needs torch.

Two of the library's hooks do not run with gloo as they are. The quantising ones expect a list of lists from the future of all_gather, and gloo's has
the tensors themselves; the same arithmetic is written out here. PowerSGD starts collectives from callbacks, and with several buckets these
run in another order on every rank, so that messages of different buckets meet; here every bucket has a group and a state of its own."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks


class PowerSGD:
    """powerSGD_hook with a group and a state for each bucket."""

    def __init__(self, groups):
        self.states = [powerSGD_hook.PowerSGDState(g, matrix_approximation_rank=4, start_powerSGD_iter=2) for g in groups]
        self.iteration = 0

    def hook(self, _, bucket):
        state = self.states[bucket.index()]
        state.iter = self.iteration  # the library counts in the state of the last bucket only
        self.iteration += bucket.is_last()
        return powerSGD_hook.powerSGD_hook(state, bucket)


def quantize_per_tensor(groups, bucket):
    group, tensor, ranks = groups[bucket.index()], bucket.buffer(), dist.get_world_size()
    observer = torch.ao.quantization.MinMaxObserver()
    observer(tensor)
    mine = torch.tensor([float(v) for v in observer.calculate_qparams()])
    scales = [torch.empty_like(mine) for _ in range(ranks)]

    def send(_):
        small = quantization_hooks._quantize_per_tensor_backend(tensor, *mine)
        parts = [torch.empty_like(small) for _ in range(ranks)]
        dist.all_gather(parts, small, group=group, async_op=True).wait()
        return parts

    def mean(future):
        total = torch.zeros_like(tensor)
        for part, scale in zip(future.value(), scales):
            total += quantization_hooks._dequantize_per_tensor_backend(part, *scale)
        return total / ranks
    return dist.all_gather(scales, mine, group=group, async_op=True).get_future().then(send).then(mean)


def noop(_, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def bf16(process_group, bucket):
    """The library's needs NCCL; the same arithmetic with what gloo sums."""
    small = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    return dist.all_reduce(small, async_op=True).get_future().then(lambda f: bucket.buffer().copy_(f.value()[0]))


GROUPS = []  # one for each bucket, where hooks start collectives from callbacks
HOOKS = {
    "noop": lambda m: m.register_comm_hook(None, noop),
    "no hook": lambda m: None,
    "fp16": lambda m: m.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "bf16": lambda m: m.register_comm_hook(None, bf16),
    "quantize_per_tensor": lambda m: m.register_comm_hook(GROUPS, quantize_per_tensor),
    "power_sgd rank 4": lambda m: m.register_comm_hook(None, PowerSGD(GROUPS).hook),
}


def work(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    GROUPS.extend(dist.new_group() for _ in range(8))
    for name, register in HOOKS.items():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1920), nn.ReLU(), nn.Linear(1920, 10))
        model = nn.parallel.DistributedDataParallel(net)
        register(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.001)
        x, y = torch.randn(64, 1024), torch.zeros(64, dtype=torch.int64)
        times = []
        for i in range(13):
            dist.barrier()
            begin = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if i >= 3:
                times.append(time.perf_counter() - begin)
        if rank == 0:
            print(f"{name:22s} {1e3 * statistics.median(times):8.1f} ms/step", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(work, args=(count,), nprocs=count)
