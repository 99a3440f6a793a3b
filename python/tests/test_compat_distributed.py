"""torch.distributed in grapnel.compat: ranks shown as devices, one test on all of them."""
import pytest

from grapnel import compat
from grapnel.compat import run


pytestmark = pytest.mark.usefixtures("names_installed")

FILE = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, register_ddp_comm_hook
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.common_distributed import DistributedTestBase, requires_accelerator_dist_backend, skip_if_lt_x_gpu

device_type = acc.type if (acc := torch.accelerator.current_accelerator()) else "cpu"
backend = dist.get_default_backend_for_device(device_type)
devices = torch.accelerator.device_count()

class T(DistributedTestBase):
    @requires_accelerator_dist_backend()
    @skip_if_lt_x_gpu(2)
    def test_groups(self):
        group = self.create_pg(device_type)
        self.assertEqual((self.world_size, group.size(), devices, dist.get_world_size()), (2, 2, 2, 2))
        self.assertEqual((group.rank(), dist.get_rank(group)), (self.rank, self.rank))
        t = torch.ones(2) * (self.rank + 1)
        dist.all_reduce(t, group=group)
        self.assertEqual(t, torch.tensor([3.0, 3.0]))
        work = dist.all_reduce(t, op=dist.ReduceOp.MAX, async_op=True)
        work.wait()
        dist.broadcast(t, 0)
        dist.barrier()

    @skip_if_lt_x_gpu(2)
    def test_hooks(self):
        group = self.create_pg(device_type)
        grads = []
        for hook in (None, DDPCommHookType.ALLREDUCE, DDPCommHookType.FP16_COMPRESS):
            torch.manual_seed(0)
            net = nn.Linear(3, 1)
            model = DistributedDataParallel(net.to(self.rank), device_ids=[self.rank], process_group=group)
            if hook is not None:
                register_ddp_comm_hook(comm_hook_type=hook, model=model, state=group)
            model(torch.ones(2, 3) * self.rank).sum().backward()
            grads.append(next(model.parameters()).grad)
        torch.testing.assert_close(grads[0], torch.ones(1, 3))
        for grad in grads[1:]:
            torch.testing.assert_close(grad, grads[0], rtol=1e-5, atol=1e-4)

    @skip_if_lt_x_gpu(2)
    def test_one_rank_fails(self):
        self.assertEqual(self.rank, 0)

class Alone(DistributedTestBase):
    def test_setup(self):
        self.assertTrue(dist.is_available())
"""


def outcomes(folder, ranks):
    path = folder / "test_some.py"
    path.write_text(FILE)
    found, _ = run.run_file(str(path), run.Expectation(), ranks=ranks)
    return {o.name: str(o) for o in found}


def test_a_test_runs_on_all_ranks(tmp_path):
    got = outcomes(tmp_path, 2)
    assert got["T.test_groups"] == got["T.test_hooks"] == got["Alone.test_setup"] == "pass"
    assert got["T.test_one_rank_fails"].startswith("FAIL (AssertionError: 1 is not 0")


def test_tests_for_several_devices_are_skipped_on_one_rank(tmp_path):
    got = outcomes(tmp_path, 1)
    assert got["T.test_groups"] == "skipped (needs 2 ranks: run with --ranks 2)" and got["Alone.test_setup"] == "pass"


def test_a_reduction_that_is_not_here_is_not_offered():
    import torch
    import torch.distributed as dist

    with pytest.raises(compat.NotOffered, match="ReduceOp.AVG"):
        dist.all_reduce(torch.ones(1), op=dist.ReduceOp.AVG)


def test_futures_are_this_library_s():
    import torch

    future = torch.futures.Future()
    future.set_result(3)
    assert future.wait() == 3
