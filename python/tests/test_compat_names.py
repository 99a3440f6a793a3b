"""grapnel.compat.torch: the names that test files of PyTorch import."""
import sys
from unittest import mock

import pytest

import grapnel
from grapnel import compat
from grapnel.compat import _missing


@pytest.fixture(autouse=True, scope="module")
def installed():
    compat.install()
    yield
    compat.uninstall()
    assert "torch" not in sys.modules and repr(grapnel.float32) == "grapnel.float32"


def test_torch_is_this_library():
    import torch

    assert torch.Tensor is grapnel.Tensor and torch.ones is grapnel.ones
    assert torch.tensor([1.0, 2.0]).sum().item() == 3
    assert torch.Tensor([2.0]).dtype is torch.float32 and torch.tensor(88).dtype is torch.int64
    assert (torch.full_like(torch.ones(2), 3.0) + torch.cat([torch.rand(1), torch.randn(1)])).shape == (2,)


def test_types_are_written_as_there():
    import torch

    assert repr(torch.float32) == str(torch.float) == "torch.float32"
    assert repr(torch.Size([2, 3])) == "torch.Size([2, 3])"


def test_names_that_mean_something_else_here_are_hidden():
    import torch

    for name in ("trace", "invoke", "opaque", "Graph"):
        assert isinstance(getattr(torch, name), _missing.Placeholder), name


def test_handles_and_modes():
    import torch
    from torch.utils.hooks import RemovableHandle

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    handle = x.register_hook(lambda grad: grad * 2)
    assert isinstance(handle, RemovableHandle) and handle != None and handle == handle  # noqa: E711

    def scale(leaf):
        leaf.grad.mul_(5)

    x.register_post_accumulate_grad_hook(scale)
    (x * x).backward(torch.ones(2))
    assert x.grad.tolist() == [20, 40]
    handle.remove()
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        x * x


def test_any_name_can_be_imported():
    with _missing.lenient():
        import torch.some.where.deep as deep
        from torch.some import Thing, other  # noqa: F401

        assert not Thing and not deep.f(1) and list(deep.names) == [] and not isinstance(1, Thing)
        assert (Thing | None) is Thing and len(deep.names) == 0 and not deep.version > (1, 2)
        assert [1] + deep.names == deep.names + [1] == [1] and list(deep.names + deep.more()) == []

        class Child(Thing):
            pass

    with pytest.raises(compat.NotOffered, match="torch.some.Thing"):
        Child()


def test_using_a_name_that_is_not_offered_ends_what_uses_it():
    import torch

    thing = torch.autograd.profiler.profile
    for use in (lambda: thing(), lambda: bool(thing), lambda: isinstance(1, thing), lambda: list(thing), lambda: thing[0], lambda: thing < 1):
        with pytest.raises(compat.NotOffered, match="torch.autograd.profiler.profile"):
            use()


def test_a_function_is_no_module():
    with pytest.raises(ImportError):
        import torch.ones  # noqa: F401


def test_torch_is_not_replaced_when_it_is_imported():
    compat.uninstall()
    sys.modules["torch"] = sys
    try:
        with pytest.raises(ImportError, match="imported already"):
            compat.install()
    finally:
        del sys.modules["torch"]
        compat.install()


def test_devices_that_are_not_there_say_so():
    import torch

    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    assert not torch.backends.mps.is_available()


def test_save_and_load(tmp_path):
    import torch

    torch.save({"a": [1, 2]}, str(tmp_path / "f"))
    assert torch.load(str(tmp_path / "f")) == {"a": [1, 2]}


def test_settings_can_be_set_and_are_listed():
    import torch
    import torch._dynamo

    @torch._dynamo.config.patch(inline_inbuilt_nn_modules=True)
    def f():
        return torch._dynamo.config.inline_inbuilt_nn_modules

    assert f() is True
    assert compat.ignored()["torch._dynamo.config.inline_inbuilt_nn_modules"] >= 1
    assert isinstance(torch._dynamo.config.inline_inbuilt_nn_modules, _missing.Placeholder)
    with torch._functorch.config.patch(guess_tangent_strides_as_outputs=True):
        pass
    assert torch._dynamo.config.error_on_recompile is False
    with mock.patch("torch._dynamo.config.error_on_recompile", True):
        assert torch._dynamo.config.error_on_recompile is True
    assert torch._dynamo.config.error_on_recompile is False
    with mock.patch("torch._functorch.aot_autograd.AOT_COUNTER", new_callable=list):
        assert torch._functorch.aot_autograd.AOT_COUNTER == []


# --- comparing ---


def close(a, b, **options):
    import torch

    torch.testing.assert_close(a, b, **options)


def test_tolerances_follow_the_type():
    import torch

    one = torch.ones(2)
    close(one, one + 1e-6)
    with pytest.raises(AssertionError, match="2 of 2 elements differ"):
        close(one, one + 1e-4)
    close(one, one + 1e-4, rtol=1e-3, atol=0)
    with pytest.raises(AssertionError):
        close(one.double(), one.double() + 1e-6)
    close(one.half(), (one * 1.0005).half())
    with pytest.raises(ValueError, match="together"):
        close(one, one, rtol=1e-3)


@pytest.mark.parametrize("a, b", [
    (lambda t: t.ones(2), lambda t: t.ones(3)), (lambda t: t.ones(2), lambda t: t.ones(2).double()), (lambda t: t.ones(2), lambda t: [1.0, 1.0]),
    (lambda t: [1, 2], lambda t: [1, 2, 3]), (lambda t: {"a": 1}, lambda t: {"b": 1}), (lambda t: 1, lambda t: 2), (lambda t: "a", lambda t: "b"),
    (lambda t: t.tensor(float("nan")), lambda t: t.tensor(float("nan"))), (lambda t: True, lambda t: 1.5), (lambda t: None, lambda t: t.ones(1))])
def test_what_differs_is_not_close(a, b):
    import torch

    with pytest.raises(AssertionError):
        close(a(torch), b(torch))


def test_nested_values_are_compared_by_their_tensors():
    import torch

    close({"a": [torch.ones(2), 1.0]}, {"a": (torch.ones(2), 1.0)})
    with pytest.raises(AssertionError, match=r"\['a'\] \[0\]"):
        close({"a": [torch.ones(2)]}, {"a": [torch.zeros(2)]})
    close(torch.tensor(float("nan")), torch.tensor(float("nan")), equal_nan=True)


def test_cases_compare_tensors_with_numbers_and_sizes_with_tuples():
    import torch
    from torch.testing._internal.common_utils import TestCase

    case = TestCase()
    case.assertEqual(torch.tensor(3.0), 3.0)
    case.assertEqual(torch.ones(2, 3).shape, (2, 3))
    case.assertEqual([None, "a"], [None, "a"])
    case.assertNotEqual(torch.ones(2), torch.zeros(2))
    with pytest.raises(AssertionError):
        case.assertNotEqual(torch.ones(2), torch.ones(2))
    with pytest.raises(AssertionError, match="why"):
        case.assertEqual(1, 2, "why")
    case.assertEqual(float("nan"), float("nan"))
    case.assertEqual(torch.ones(2).double(), torch.ones(2), exact_dtype=False)


def test_random_tensors_of_every_type():
    import torch
    from torch.testing import make_tensor

    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool):
        t = make_tensor((3, 4), dtype=dtype, device="cpu")
        assert t.dtype is dtype and t.shape == (3, 4)
    assert make_tensor(2, 2, dtype=torch.float32, low=1, high=2, requires_grad=True).requires_grad
