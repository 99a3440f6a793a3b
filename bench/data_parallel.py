#!/usr/bin/env python3
"""The step of bench/data_parallel.cpp in PyTorch with gloo: python3 bench/data_parallel.py [ranks]. Needs torch."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks


def quantize_per_tensor(process_group, bucket):
    return quantization_hooks.quantization_pertensor_hook(process_group or dist.group.WORLD, bucket)


def noop(_, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def bf16(process_group, bucket):
    """The library's needs NCCL; the same arithmetic with what gloo sums."""
    small = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    return dist.all_reduce(small, async_op=True).get_future().then(lambda f: bucket.buffer().copy_(f.value()[0]))


HOOKS = {
    "noop": lambda m: m.register_comm_hook(None, noop),
    "no hook": lambda m: None,
    "fp16": lambda m: m.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "bf16": lambda m: m.register_comm_hook(None, bf16),
    "power_sgd rank 4": lambda m: m.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook),
    # Last, since with gloo it fails and leaves the group unusable.
    "quantize_per_tensor": lambda m: m.register_comm_hook(None, quantize_per_tensor),
}


def work(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    for name, register in HOOKS.items():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1920), nn.ReLU(), nn.Linear(1920, 10))
        model = nn.parallel.DistributedDataParallel(net)
        register(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.001)
        x, y = torch.randn(64, 1024), torch.zeros(64, dtype=torch.int64)
        times = []
        try:
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
        except (RuntimeError, AssertionError) as error:
            if rank == 0:
                print(f"{name:22s} fails: {str(error).splitlines()[0][:80]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(work, args=(count,), nprocs=count)
