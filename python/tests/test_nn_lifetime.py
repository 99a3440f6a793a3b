"""Modules, their hooks and tensors: who keeps whom alive, and that rings are collected."""
import gc
import weakref

import pytest

import grapnel as g
from grapnel import nn
from hook_tools import rss


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


def hook_that_captures_its_module():
    net = Net()
    net.register_forward_hook(lambda m, a, o: (net, None)[1])
    return net


def hook_of_a_submodule_that_captures_the_root():
    net = Net()
    net.fc.register_forward_pre_hook(lambda m, a: (net, None)[1])
    net.fc.register_full_backward_hook(lambda m, i, o: (net, None)[1])
    return net


def hook_of_a_parameter_that_captures_the_module():
    net = Net()
    net.fc.weight.register_hook(lambda grad: (net, None)[1])
    return net


def hook_of_a_parameter_that_captures_the_parameter():
    net = Net()
    weight = net.fc.weight
    weight.register_post_accumulate_grad_hook(lambda p: (weight, None)[1])
    net.again = [net]
    return net


def child_that_points_at_its_parent():
    net = Net()
    net.fc.__dict__["parent"] = net
    return net


def shared_submodule_of_two_parents():
    a, b = Net(), Net()
    b.fc = a.fc
    a.__dict__["other"], b.__dict__["other"] = b, a
    a.fc.__dict__["owners"] = [a, b]
    return a


def tied_parameters():
    net = nn.Module()
    net.a, net.b = nn.Linear(2, 2), nn.Linear(2, 2)
    net.b.weight = net.a.weight
    net.a.weight.register_hook(lambda grad: (net, None)[1])
    return net


def state_hooks():
    net = Net()
    net.register_state_dict_pre_hook(lambda *a: (net, None)[1])
    net.register_state_dict_post_hook(lambda *a: (net, None)[1])
    net.register_load_state_dict_pre_hook(lambda *a: (net, None)[1])
    net.register_load_state_dict_post_hook(lambda *a: (net, None)[1])
    net.state_dict()
    return net


def attention_with_hooks_inside():
    net = nn.MultiheadAttention(4, 2)
    net.out_proj.register_forward_hook(lambda m, a, o: (net, None)[1])
    net.out_proj.weight.register_hook(lambda grad: (net, None)[1])
    return net


def called_and_run_backward():
    net = Net()
    net.register_full_backward_hook(lambda m, i, o: (net, None)[1])
    net.fc.weight.register_hook(lambda grad: (net, None)[1])
    net(g.ones(1, 2, requires_grad=True)).sum().backward()
    return net


def handle_in_its_hook():
    net, box = Net(), []
    box.append(net.register_forward_hook(lambda m, a, o: (box, None)[1]))
    box.append(net)
    return net


SHAPES = [hook_that_captures_its_module, hook_of_a_submodule_that_captures_the_root, hook_of_a_parameter_that_captures_the_module,
          hook_of_a_parameter_that_captures_the_parameter, child_that_points_at_its_parent, shared_submodule_of_two_parents, tied_parameters,
          state_hooks, attention_with_hooks_inside, called_and_run_backward, handle_in_its_hook]


@pytest.mark.parametrize("make", SHAPES, ids=lambda f: f.__name__)
def test_rings_are_collected(make):
    gc.collect()
    net = make()
    seen = [weakref.ref(net), weakref.ref(next(net.parameters()))]
    del net
    gc.collect()
    gc.collect()
    assert [r() for r in seen] == [None, None]


@pytest.mark.flat_memory
@pytest.mark.parametrize("make", SHAPES, ids=lambda f: f.__name__)
def test_rings_leave_no_memory_behind(make):
    for _ in range(150):
        make()
    gc.collect()
    before = rss()
    for _ in range(600):
        make()
    gc.collect()
    assert rss() - before < 2_000_000


@pytest.mark.parametrize("make", SHAPES, ids=lambda f: f.__name__)
def test_what_somebody_has_is_not_collected(make):
    """The collector runs while one object of the ring is in use: a parameter, a submodule, the module."""
    for hold in (lambda net: net, lambda net: next(net.parameters()), lambda net: next(net.children())):
        held = hold(make())
        for _ in range(3):
            gc.collect()
        if isinstance(held, g.Tensor):
            (held * 2).sum().backward()
            assert held.grad is not None
        else:
            x = g.ones(1, 1, 4) if isinstance(held, nn.MultiheadAttention) else g.ones(1, next(held.parameters()).shape[-1])
            for parameter in held.parameters():
                assert isinstance(parameter, nn.Parameter)
            if type(held) is not nn.Module:
                held(x, x, x) if isinstance(held, nn.MultiheadAttention) else held(x)


def test_modules_and_layers_die_by_counts_alone():
    gc.disable()
    try:
        net = nn.Sequential(Net(), nn.Linear(2, 2), nn.TransformerEncoderLayer(4, 2, 8))
        seen = [weakref.ref(m) for m in net.modules()] + [weakref.ref(p) for p in net.parameters()]
        del net
        assert all(r() is None for r in seen)
    finally:
        gc.enable()


def test_collection_at_every_step():
    gc.set_threshold(1)
    try:
        for _ in range(5):
            for make in SHAPES:
                net = make()
                net.state_dict()
                for _, module in net.named_modules():
                    module.training = True
    finally:
        gc.set_threshold(700, 10, 10)


def test_a_parameter_outlives_its_module():
    weight = Net().fc.weight
    gc.collect()
    assert isinstance(weight, nn.Parameter)
    calls = []
    weight.register_hook(lambda grad: calls.append(1))
    gc.collect()
    weight.sum().backward()
    assert calls == [1]
