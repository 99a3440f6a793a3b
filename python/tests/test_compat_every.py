"""Every name that grapnel.compat.torch offers is used by a test: here those that no other file uses, and a check that none is left."""
import pathlib
import re
import unittest

import pytest

import grapnel as g
from grapnel import compat
from grapnel.compat import _missing

FLAGS = """IS_WINDOWS IS_MACOS IS_ARM64 IS_FBCODE IS_JETSON IS_SANDCASTLE IS_CI TEST_WITH_ASAN TEST_WITH_DEV_DBG_ASAN TEST_WITH_ROCM TEST_WITH_TSAN
TEST_WITH_TORCHDYNAMO TEST_WITH_CROSSREF TEST_WITH_SLOW TEST_CUDA TEST_MKL TEST_MULTIGPU TEST_XPU TEST_HPU TEST_WITH_UBSAN TEST_WITH_TORCHINDUCTOR
TEST_SCIPY TEST_ACCELERATOR""".split()
NO_QUESTION = """skipIfTorchDynamo xfailIfTorchDynamo skipIfNoLapack skipIfWindows skipIfMPS skipIfXpu skipIfRocm skipIfTorchInductor slowTest
markDynamoStrictTest skipIfNotMiopenSuggestNHWC skipIfCrossRef unMarkDynamoStrictTest skipIfSlowGradcheckEnv skipIfHpu skipIfXPU
skipIfTorchVersionLessThan""".split()
NO_QUESTION_OF_DEVICES = """onlyCPU onlyNativeDeviceTypes dtypesIfCUDA dtypesIfMPS dtypesIfXPU skipMeta skipCUDAIf largeTensorTest expectedFailureMPS
expectedFailureXLA expectedFailureMeta skipXPUIf skipMPSIf skipXLA skipCUDAIfNoMagma skipCPUIfNoLapack skipMPS expectedFailureMPSComplex""".split()


def skips(decorator):
    """Whether a decorated test skips itself."""
    try:
        decorator(lambda: None)()
    except unittest.SkipTest:
        return True
    return False


def test_types_and_constants(torch):
    assert [str(t) for t in (torch.float16, torch.bfloat16, torch.int32, torch.long, torch.half)] == [
        "torch.float16", "torch.bfloat16", "torch.int32", "torch.int64", "torch.float16"]
    assert torch.HalfTensor([1]).dtype is torch.float16 and torch.BFloat16Tensor([1]).dtype is torch.bfloat16
    assert torch.IntTensor([1]).dtype is torch.int32
    assert torch.inf > 1e300 and 3.14 < torch.pi < 3.15 and torch.nan != torch.nan and 2.71 < torch.e < 2.72
    assert [torch.strided, torch.contiguous_format, torch.preserve_format] == ["strided", "contiguous_format", "preserve_format"]
    assert torch.is_floating_point(torch.ones(1)) and not torch.is_floating_point(torch.tensor(1))
    assert not torch.is_complex(torch.ones(1)) and not torch.is_storage(torch.ones(1))
    assert torch.__version__.startswith("2.13")


def test_settings_of_the_process(torch):
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(3)
    assert {"torch.use_deterministic_algorithms", "torch.set_num_threads"} <= set(compat.ignored())
    cpu = torch.get_device_module("cpu")
    assert cpu is torch.cpu and cpu.is_available() and cpu.device_count() == 1 and cpu.synchronize() is None and not cpu._initialized


@pytest.mark.parametrize("name", ["cuda", "xpu", "mps", "backends.cuda", "backends.mps", "backends.mkldnn", "backends.cudnn"])
def test_what_is_not_there_says_so(torch, name):
    there = torch
    for part in name.split("."):
        there = getattr(there, part)
    assert not (there.is_available() or there.is_initialized() or there.is_built() or there._initialized) and there.device_count() == 0
    assert there.synchronize() is None and there.empty_cache() is None and there.manual_seed_all(3) is None


def test_an_accelerator_stands_for_a_rank(torch):
    assert torch.accelerator.current_accelerator() is None and torch.accelerator.device_count() == 1 and not torch.accelerator.is_available()
    assert torch.accelerator.current_device_index() == 0 and torch.accelerator.synchronize() is None


def test_names_of_the_compiler(torch):
    assert torch._dynamo.graph_break() is None and not torch.compiler.is_compiling()
    torch._dynamo.maybe_mark_dynamic(torch.ones(1), 0)
    torch._dynamo.decorators.mark_unbacked(torch.ones(1), 0)
    assert {"torch._dynamo.maybe_mark_dynamic", "torch._dynamo.mark_unbacked"} <= set(compat.ignored())
    assert torch._dynamo.testing.unsupported is None and not skips(torch._dynamo.testing.skipIfNotPy311)
    assert torch._dynamo.testing.reset is torch._dynamo.reset
    from torch._dynamo.eval_frame import OptimizedModule
    from torch._inductor.test_case import TestCase, run_tests
    from torch.fx import GraphModule

    assert isinstance(torch.compile(torch.nn.Linear(1, 1)), OptimizedModule) and callable(run_tests) and GraphModule.__name__ == "GraphModule"
    assert TestCase is torch._dynamo.test_case.TestCase and run_tests is torch._dynamo.test_case.run_tests
    with torch._inductor.config.patch(anything=3):
        assert torch._inductor.config.anything == 3
    from functorch.experimental import control_flow  # noqa: F401
    from torch._higher_order_ops.cond import cond

    assert cond(torch.tensor(True), lambda x: x + 1, lambda x: x, (torch.ones(1),)).item() == 2


def test_conversions(torch):
    import torch.__future__ as future

    future.set_overwrite_module_params_on_conversion(True)
    assert not future.get_overwrite_module_params_on_conversion()


def test_hooks_of_all_modules(torch):
    from torch.nn.modules import module as m

    seen, x = [], torch.ones(1, 2, requires_grad=True)
    handles = [getattr(m, name)(lambda *args, name=name: seen.append(name)) for name in (
        "register_module_full_backward_pre_hook", "register_module_full_backward_hook", "register_module_backward_hook",
        "register_module_forward_pre_hook", "register_module_forward_hook")]
    torch.nn.Linear(2, 1)(x).sum().backward()
    for handle in handles:
        handle.remove()
    assert sorted(seen) == sorted(["register_module_full_backward_pre_hook", "register_module_full_backward_hook", "register_module_backward_hook",
                                   "register_module_forward_pre_hook", "register_module_forward_hook"])
    torch.nn.Linear(2, 1)(x).sum().backward()
    assert len(seen) == 5


def test_older_comparison_and_tolerances(torch):
    torch.testing.assert_allclose(torch.ones(2), torch.ones(2).double() + 1e-6)
    with pytest.raises(AssertionError):
        torch.testing.assert_allclose(torch.ones(2), torch.zeros(2))
    from torch.testing._comparison import default_tolerances

    assert default_tolerances(torch.float32, torch.bfloat16) == (1.6e-2, 1e-5)


def test_flags_and_decorators(torch):
    from torch.testing._internal import common_cuda, common_device_type, common_utils

    assert not any(getattr(common_utils, name) for name in FLAGS) and common_utils.IS_LINUX and isinstance(common_utils.TEST_NUMPY, bool)
    assert not (common_cuda.TEST_CUDA or common_cuda.TEST_MULTIGPU or common_cuda.TEST_CUDNN)
    for names, where in ((NO_QUESTION, common_utils), (NO_QUESTION_OF_DEVICES, common_device_type)):
        for name in names:
            decorator = getattr(where, name)
            assert not skips(decorator) and not skips(decorator("why")), name
    for decorator in (common_utils.scoped_load_inline, common_utils.skipIfNoSciPy, common_device_type.onlyCUDA, common_device_type.onlyAccelerator,
                      common_device_type.deviceCountAtLeast(2)):
        assert skips(decorator)
    assert not skips(common_utils.serialTest()) and common_utils.NestedTensorTestCase is common_utils.TestCase and callable(common_utils.run_tests)
    assert common_device_type.dtypesIfCPU(torch.float32)(skips)._dtypes == (torch.float32,)
    del skips._dtypes


def test_settings_that_are_put_back(torch):
    from torch.testing._internal.common_utils import freeze_rng_state, instantiate_parametrized_tests, swap

    before = torch.rand(2)
    with freeze_rng_state():
        first = torch.rand(2)
    assert torch.rand(2).tolist() == first.tolist() and before.shape == (2,)

    @instantiate_parametrized_tests
    class T:
        @swap([True, False])
        def test_a(self):
            return 3

    assert [T().test_a_swap_True(), T().test_a_swap_False()] == [3, 3]


def test_a_group_that_is_there_already(torch):
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_group
    from torch.testing._internal import common_distributed as c

    assert dist.is_initialized() and dist.get_backend() == "grapnel" and dist.FileStore("x", 1) is None and dist.HashStore() is None
    assert not (dist.is_nccl_available() or dist.is_gloo_available() or dist.is_mpi_available())
    assert (dist.ProcessGroup, dist.Work, dist.GradBucket) == (g.dist.ProcessGroup, g.dist.Work, g.dist.GradBucket)

    def on_a_rank(group):
        dist.init_process_group("gloo", world_size=2)
        assert _get_default_group().size() == 2
        with pytest.raises(RuntimeError, match="there are 2 ranks, not 3"):
            dist.init_process_group(world_size=3)
        dist.destroy_process_group()

    g.dist.run_threads(2, on_a_rank)
    assert c.MultiProcessTestCase is c.DistributedTestBase and c.TEST_SKIPS == {}
    assert not skips(c.requires_nccl()) and not skips(c.requires_gloo())


def test_no_name_is_without_a_test(torch):
    text = "".join(file.read_text() for file in pathlib.Path(__file__).parent.glob("test_compat_*.py"))
    words = set(re.findall(r"\w+", text))
    own = {"_sources", "_hidden"}
    for name, shim in _missing.modules.items():
        without = [n for n, value in vars(shim).items() if n not in words | own and not n.startswith("__") and not isinstance(value, _missing.Shim)]
        assert not without, f"{name}: {without}"
