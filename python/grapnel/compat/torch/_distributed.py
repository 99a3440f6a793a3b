"""`torch.distributed`, with ranks shown as devices: every rank sees as many devices as there are ranks, and is one of them.

A distributed test runs on `GRAPNEL_COMPAT_RANKS` threads, or as one of the processes that mpirun started.
"""
import copy
import enum
import functools
import os
import types
import unittest

import grapnel
from grapnel.compat._missing import NotOffered, ignore, module
from grapnel.compat.torch import top
from grapnel.compat.torch._testing import TestCase

dist = getattr(grapnel, "dist", None)
NAME = "grapnel"  # of the only backend
CHANGES = []


def ranks():
    """How many ranks tests see."""
    return int(os.environ.get("GRAPNEL_COMPAT_RANKS", "1"))


def _group(group=None):
    return group if isinstance(group, dist.ProcessGroup) else dist.init()


def _init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None,
                        device_id=None):
    """Ranks exist before the test begins, so there is nothing to be set up; how many there are must agree."""
    if world_size not in (-1, _group().size()):
        raise RuntimeError(f"init_process_group: there are {_group().size()} ranks, not {world_size}.")


def _reduction(op):
    names = {"SUM": "sum", "MIN": "min", "MAX": "max", "PRODUCT": "product"}
    if op not in names:
        raise NotOffered(f"torch.distributed.ReduceOp.{op}")
    return names[op]


def _finished(work, async_op):
    if async_op:
        return work
    work.wait()


def all_reduce(tensor, op="SUM", group=None, async_op=False):
    return _finished(_group(group).all_reduce(tensor, _reduction(op)), async_op)


def broadcast(tensor, src=0, group=None, async_op=False):
    return _finished(_group(group).broadcast(tensor, src), async_op)


def barrier(group=None, async_op=False, device_ids=None):
    return _finished(_group(group).barrier(), async_op)


class DDPCommHookType(enum.Enum):
    """Grapnel's hooks under PyTorch's names."""

    ALLREDUCE = "allreduce"
    FP16_COMPRESS = "fp16_compress"
    BF16_COMPRESS = "bf16_compress"
    QUANTIZE_PER_TENSOR = "quantize_per_tensor"
    QUANTIZE_PER_CHANNEL = "quantize_per_channel"
    NOOP = "noop"


def register_ddp_comm_hook(comm_hook_type, model, state=None):
    model.register_builtin_comm_hook(comm_hook_type.value)


_HERE = {"bucket_cap_mb", "find_unused_parameters", "static_graph", "gradient_as_bucket_view", "broadcast_buffers"}


def _data_parallel(module, device_ids=None, output_device=None, dim=0, process_group=None, **options):
    for name in [name for name in options if name not in _HERE]:
        ignore(f"torch.nn.parallel.DistributedDataParallel({name}=)")
        options.pop(name)
    return dist.DistributedDataParallel(module, _group(process_group), **options)


class DistributedTestBase(TestCase):
    """Runs every test once per rank."""

    world_size = property(lambda self: ranks())
    _group = None

    def __init__(self, methodName="runTest", *args):  # noqa: N803
        super().__init__(methodName)
        test = getattr(self, methodName, None)
        if test is not None:
            setattr(self, methodName, functools.wraps(test)(lambda: self._on_all_ranks(test.__func__)))

    def _on_all_ranks(self, test):
        def run(group):
            mine = copy.copy(self)
            mine._group = group
            test(mine)

        if grapnel._core._dist._launched_by_mpi():
            run(dist.init())
        else:
            dist.run_threads(self.world_size, run)

    @property
    def rank(self):
        return self._group.rank() if self._group is not None else 0

    @property
    def file_name(self):
        return os.devnull + ".no_such_file"

    def create_pg(self, device=None, world_size=None):
        _init_process_group(world_size=self.world_size)
        return self._group

    def _spawn_processes(self):
        """Ranks are threads here."""

    def destroy_pg(self, device=None):
        pass


def _needs_ranks(count):
    return unittest.skipIf(ranks() < count, f"needs {count} ranks: run with --ranks {count}")


def _plain(*args, **kwargs):
    """Requirements on libraries for GPUs."""
    return lambda test: test


class _Accelerator:
    type = NAME

    def __str__(self):
        return self.type


_accelerator = _Accelerator()

if dist is not None:
    _reductions = types.SimpleNamespace(SUM="SUM", MIN="MIN", MAX="MAX", PRODUCT="PRODUCT", AVG="AVG")
    module(
        "torch.distributed", is_available=lambda: True, is_initialized=lambda: True, init_process_group=_init_process_group,
        destroy_process_group=lambda group=None: None, get_rank=lambda group=None: _group(group).rank(),
        get_world_size=lambda group=None: _group(group).size(), all_reduce=all_reduce, broadcast=broadcast, barrier=barrier, ReduceOp=_reductions,
        ProcessGroup=dist.ProcessGroup, Work=dist.Work, GradBucket=dist.GradBucket, FileStore=lambda *args: None, HashStore=lambda *args: None,
        get_default_backend_for_device=lambda device: NAME, is_nccl_available=lambda: False, is_gloo_available=lambda: False,
        is_mpi_available=lambda: False, get_backend=lambda group=None: NAME)
    module("torch.distributed.distributed_c10d", _get_default_group=_group, ReduceOp=_reductions)
    module("torch.distributed.algorithms")
    module("torch.distributed.algorithms.ddp_comm_hooks", DDPCommHookType=DDPCommHookType, register_ddp_comm_hook=register_ddp_comm_hook)
    module("torch.nn.parallel", DistributedDataParallel=_data_parallel)
    module("torch.futures", Future=dist.Future)
    CHANGES.append((dist.Future, "__class_getitem__", classmethod(lambda cls, what: cls)))  # Future[int], of annotations
    module("torch.accelerator", current_accelerator=lambda check_available=False: _accelerator if ranks() > 1 else None, device_count=ranks,
           is_available=lambda: ranks() > 1, current_device_index=lambda: 0, synchronize=lambda *args: None)
    module("torch.testing._internal.common_distributed", DistributedTestBase=DistributedTestBase, MultiProcessTestCase=DistributedTestBase,
           requires_accelerator_dist_backend=_plain, requires_nccl=_plain, requires_gloo=_plain, skip_if_lt_x_gpu=_needs_ranks,
           TEST_SKIPS={})
    top.cuda.__dict__["device_count"] = lambda: ranks() if ranks() > 1 else 0
else:
    module("torch.distributed", is_available=lambda: False, is_initialized=lambda: False)
