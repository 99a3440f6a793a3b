"""torch.nn in grapnel.compat: modules, compiled ones, and where PyTorch keeps the names of their hooks."""
import warnings

import pytest

import grapnel


def add_one(torch):
    class AddOne(torch.nn.Module):
        def forward(self, x):
            return x + 1

    return AddOne()


def test_modules_are_this_library_s(torch):
    import torch.nn as nn
    from torch.nn.modules.module import register_module_forward_hook  # noqa: F401

    assert nn.Module is grapnel.nn.Module and torch.nn.Linear is grapnel.nn.Linear
    assert torch.nn.functional.relu(torch.ones(2) * -1).tolist() == [0, 0]
    mod = nn.Module()
    mod.handle = None
    mod.handle = torch.ones(1, requires_grad=True).register_hook(lambda grad: grad)
    assert mod.handle != None  # noqa: E711
    layers = nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 1, bias=False)])
    assert len(list(layers.parameters())) == 3 and layers[0].to(0) is layers[0] and layers.cpu() is layers


def test_hooks_of_modules_change_arguments_and_results(torch):
    mod = add_one(torch)
    mod.register_forward_pre_hook(lambda m, args: args[0] * 2)
    mod.register_forward_hook(lambda m, args, out: out * 10)
    assert mod(torch.ones(1)).item() == 30


def test_a_compiled_module_is_a_module(torch):
    count = torch._dynamo.testing.CompileCounter()
    inner = torch.nn.Linear(2, 2)
    compiled = torch.compile(inner, backend=count)
    assert isinstance(compiled, torch.nn.Module) and compiled.weight is inner.weight
    x = torch.ones(1, 2)
    assert compiled(x).tolist() == inner(x).tolist() and count.frame_count == 1
    both = torch.nn.ModuleList([compiled])
    assert [name for name, _ in both.named_parameters()] == ["0._orig_mod.weight", "0._orig_mod.bias"]


def test_a_hook_that_is_added_later_is_another_graph(torch):
    count = torch._dynamo.testing.CompileCounter()
    mod = add_one(torch)
    compiled = torch.compile(lambda x: mod(x), backend=count)
    compiled(torch.ones(2))
    mod.register_forward_hook(lambda m, args, out: out * 2)
    assert compiled(torch.ones(2)).tolist() == [4, 4] and count.frame_count == 2


def test_a_module_compiles_itself(torch):
    count = torch._dynamo.testing.CompileCounter()
    mod = add_one(torch)
    mod.compile(backend=count)
    assert mod(torch.ones(2)).tolist() == [2, 2] and count.frame_count == 1


def test_hooks_of_all_modules_see_the_compiled_module_too_and_a_warning_says_so(torch):
    seen = []
    mod = add_one(torch)
    compiled = torch.compile(mod, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.ones(1))
    handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda m, args: seen.append(type(m).__name__))
    try:
        with pytest.warns(UserWarning, match="there are global hooks"):
            compiled(torch.ones(1))
    finally:
        handle.remove()
    assert seen == ["OptimizedModule", "AddOne"]


def test_a_net_to_test_registration_with(torch):
    from torch.testing._internal.common_nn import NNTestCase, _create_basic_net
    from torch.testing._internal.common_utils import TestCase

    inner, net, all_of_it = _create_basic_net()
    assert net in list(all_of_it.modules()) and inner in list(net.modules())
    assert len(list(all_of_it.parameters())) == 2 and len(list(all_of_it.buffers())) == 2 and issubclass(NNTestCase, TestCase)


def test_the_names_in_that_net(torch):
    from torch.testing._internal.common_nn import _create_basic_net

    _, net, _ = _create_basic_net()
    assert [name for name, _ in net.named_parameters()] == ["dummy_param", "l1.layer_dummy_param"]
    assert [name for name, _ in net.named_buffers()] == ["dummy_buf", "l1.layer_dummy_buf"]


def test_lists_of_modules_are_compared_by_their_modules(torch):
    from torch.testing._internal.common_utils import TestCase

    case, first, second = TestCase(), torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    case.assertEqual(torch.nn.Sequential(first, second), torch.nn.Sequential(first, second))
    case.assertEqual(torch.nn.ModuleList([first]), torch.nn.ModuleList([first]))
    for other in (torch.nn.Sequential(first), torch.nn.Sequential(second, first), torch.nn.ModuleList([first, second])):
        with pytest.raises(AssertionError):
            case.assertEqual(torch.nn.Sequential(first, second), other)
