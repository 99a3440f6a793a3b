"""Names of grapnel.compat.torch that need a line or two each."""
import gc
import os
import warnings

import pytest

import grapnel as g
from grapnel import compat


def test_older_names_of_tensors(torch):
    assert torch.LongTensor([1, 2]).dtype is torch.int64 and torch.FloatTensor(2, 3).shape == (2, 3) and torch.BoolTensor([True]).tolist() == [True]
    assert torch.DoubleTensor([1.5]).dtype is torch.float64 and torch.ByteTensor().numel() == 0
    x = torch.autograd.Variable(torch.ones(2), requires_grad=True)
    assert x.requires_grad and x.is_leaf


def test_conditions_are_checked(torch):
    torch._check(True)
    with pytest.raises(RuntimeError, match="why"):
        torch._check(False, lambda: "why")


def test_data_sets_are_this_library_s(torch):
    from torch.utils.data import DataLoader, TensorDataset

    assert TensorDataset is g.data.TensorDataset and DataLoader is g.data.DataLoader
    assert not torch.is_inference(torch.ones(1))


def test_settings_of_autograd_change_nothing_and_are_listed(torch):
    torch.autograd._force_original_view_tracking(False)
    with torch.autograd._force_original_view_tracking(True):
        pass
    assert compat.ignored()["torch.autograd._force_original_view_tracking"] >= 2 and not torch.autograd.kineto_available()


def test_gradients_are_checked_and_what_is_not_checked_is_told(torch):
    from torch.autograd.gradcheck import gradcheck, gradgradcheck
    from torch.testing._internal.common_utils import gradcheck as of_tests

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    for check in (gradcheck, gradgradcheck, of_tests, torch.autograd.gradcheck):
        assert check(lambda t: t * t * t, (x,), check_undefined_grad=True)
    assert gradgradcheck(lambda t: t * t * t, (x,), (torch.ones(2, dtype=torch.float64),))
    assert {"torch.autograd.gradcheck(check_undefined_grad=)", "torch.autograd.gradgradcheck(grad_outputs=)"} <= set(compat.ignored())
    with pytest.raises(compat.NotOffered, match="check_forward_ad"):
        gradcheck(lambda t: t, (x,), check_forward_ad=True)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    assert not gradcheck(Wrong.apply, (x,), raise_exception=False)


def test_results_are_the_same_or_not(torch):
    from torch._dynamo.testing import same

    assert same({"a": [torch.ones(2), 3]}, {"a": (torch.ones(2) + 1e-6, 3)})
    assert not same(torch.ones(2), torch.ones(2) + 1) and not same(torch.ones(2), torch.ones(2).double())
    assert same(torch.ones(2), torch.ones(2).double(), exact_dtype=False)


def test_sizes_are_static_here(torch):
    from torch._dynamo.utils import ifdynstaticdefault

    x = torch.ones(2)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_static(x)
    assert ifdynstaticdefault(1, 2) == 1 and {"torch._dynamo.mark_dynamic", "torch._dynamo.mark_static"} <= set(compat.ignored())


def test_a_compile_without_breaks(torch):
    f = torch._dynamo.optimize_assert("eager")(lambda x: float(x.sum()))
    with pytest.raises(torch._dynamo.exc.Unsupported):
        f(torch.ones(2))


def test_what_is_not_to_be_compiled_is_the_function(torch):
    @torch._dynamo.disable
    def f(x):
        return x * 2

    @torch.compiler.disable(recursive=False)
    def h(x):
        return x * 3

    assert f(torch.ones(1)).item() == 2 and h(torch.ones(1)).item() == 3 and f.__name__ == "f"
    with pytest.raises(compat.NotOffered, match="disable"):
        torch.compile(lambda x: f(x))(torch.ones(1))
    assert f(torch.ones(1)).item() == 2


def test_helpers_of_tests(torch):
    from torch.testing._internal import common_utils as u

    with u.disable_gc():
        assert not gc.isenabled()
    assert gc.isenabled()
    with u.TemporaryFileName() as name:
        assert os.path.exists(name)
    assert not os.path.exists(name) and u.BytesIOContext().read() == b""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert u.suppress_warnings(lambda: (warnings.warn("x"), 3)[1])() == 3
    case = u.TestCase()
    case.assertNotWarn(lambda: None)
    with pytest.raises(AssertionError):
        case.assertNotWarn(lambda: warnings.warn("x"))
    with u.set_warn_always_context(True):
        pass


def test_a_test_that_is_run_twice(torch):
    from torch.testing._internal.common_utils import make_dynamo_test

    runs = []

    @make_dynamo_test
    def test(self):
        runs.append(float is not None)

    @make_dynamo_test()
    def breaks(self):
        return float((torch.ones(2) * 2).sum())

    test(None)
    assert runs == [True, True] and test.__name__ == "test"
    with pytest.raises(torch._dynamo.exc.Unsupported):
        breaks(None)


def test_arrays_are_compared_by_their_elements(torch):
    numpy = pytest.importorskip("numpy")
    case = torch.testing._internal.common_utils.TestCase()
    case.assertEqual(numpy.ones(2), numpy.ones(2))
    case.assertEqual(torch.ones(2).tolist(), numpy.ones(2))
    with pytest.raises(AssertionError):
        case.assertEqual(numpy.ones(2), numpy.zeros(2))


def test_futures_may_be_annotated(torch):
    assert torch.futures.Future[int] is torch.futures.Future


def test_conversions_by_swapping_have_no_meaning(torch):
    import torch.__future__ as future

    future.set_swap_module_params_on_conversion(True)
    assert not future.get_swap_module_params_on_conversion()


def test_a_function_is_compared_with_itself_compiled(torch):
    from torch._dynamo.testing import standard_test

    case = torch.testing._internal.common_utils.TestCase()
    standard_test(case, lambda a, b: a * b + 1, 2, expected_ops=2)
    standard_test(case, fn=lambda a: a.add_(1), nargs=1)
    for wrong in ({"expected_ops": 3}, {"expected_frame_count": 2}):
        with pytest.raises(AssertionError):
            standard_test(case, lambda a, b: a * b + 1, 2, **wrong)
    results = iter([1, 2])
    with pytest.raises(AssertionError):
        standard_test(case, lambda a: a * 0 + next(results), 1)
    assert torch._dynamo.config.assume_static_by_default and torch._dynamo.guards.guard_manager_testing_hook_fn is None


def test_nested_values_are_leaves_and_a_form(torch):
    import collections

    import torch.utils._pytree as pytree

    Pair = collections.namedtuple("Pair", ["a", "b"])
    tree = {"x": [1, (2, 3)], "y": Pair(4, collections.OrderedDict(z=5)), "n": None}
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == pytree.tree_leaves(tree) == [1, 2, 3, 4, 5, None] and spec.num_leaves == 6 and isinstance(spec, pytree.TreeSpec)
    again = pytree.tree_unflatten(leaves, spec)
    assert again == tree and type(again["y"]) is Pair and type(again["y"].b) is collections.OrderedDict
    assert spec == pytree.tree_flatten(again)[1] and spec != pytree.tree_flatten([1])[1] and "Pair" in repr(spec)
    assert pytree.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert pytree.tree_map_only(int, lambda a: a + 1, [1, "a"]) == [2, "a"] == pytree.tree_map_only(lambda a: a == 1, lambda a: 2, [1, "a"])
    assert pytree.tree_leaves([(1, 2)], is_leaf=lambda t: isinstance(t, tuple)) == [(1, 2)]
    assert pytree.tree_is_leaf(1) and not pytree.tree_is_leaf([])
    with pytest.raises(ValueError, match="6 leaves, got 1"):
        pytree.tree_unflatten([1], spec)
