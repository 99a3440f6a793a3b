"""Hooks of modules written in Python, beside those of C++."""
import pytest

import grapnel as g
from grapnel import nn
from grapnel.nn.modules import module as modules


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x, factor=1):
        return self.fc(x) * factor


X = [[1.0, 2.0, 3.0]]


@pytest.fixture(params=["python", "layer"])
def net(request):
    return Net() if request.param == "python" else nn.Linear(3, 3)


def test_a_forward_pre_hook_sees_and_replaces_arguments(net):
    x, seen = g.tensor(X), []
    handle = net.register_forward_pre_hook(lambda m, args: seen.append((m, args)))
    plain = net(x)
    assert seen == [(net, (x,))] and seen[0][1][0] is x
    handle.remove()
    net.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    net.register_forward_pre_hook(lambda m, args: args[0] / 2)  # one value stands for a single argument
    assert g.allclose(net(x), plain) and len(seen) == 1


def test_a_forward_pre_hook_with_kwargs():
    net, x = Net(), g.tensor(X)
    plain = net(x)
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"factor": kwargs["factor"] + 1}), with_kwargs=True)
    assert g.allclose(net(x, factor=1), plain * 2)
    net.register_forward_pre_hook(lambda m, args, kwargs: args, with_kwargs=True)
    with pytest.raises(TypeError, match=r"returns None or a tuple \(args, kwargs\)"):
        net(x, factor=1)


def test_a_forward_hook_sees_and_replaces_the_result(net):
    x, seen = g.tensor(X), []
    net.register_forward_hook(lambda m, args, out: seen.append((m, args[0], out)))
    plain = net(x)
    assert seen[0][0] is net and seen[0][1] is x and seen[0][2] is plain
    net.register_forward_hook(lambda m, args, out: out + 1)
    assert g.allclose(net(x), plain + 1)


def test_a_forward_hook_with_kwargs():
    net, seen = Net(), []
    net.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    net(g.tensor(X), factor=5)
    assert seen == [{"factor": 5}]


def test_order_and_prepend(net):
    order = []
    for name in "ab":
        net.register_forward_pre_hook(lambda m, a, name=name: order.append("pre " + name))
        net.register_forward_hook(lambda m, a, o, name=name: order.append(name))
    net.register_forward_pre_hook(lambda m, a: order.append("pre first"), prepend=True)
    net.register_forward_hook(lambda m, a, o: order.append("first"), prepend=True)
    net(g.tensor(X))
    assert order == ["pre first", "pre a", "pre b", "first", "a", "b"]


def test_always_called_hooks_run_after_an_error():
    class Bad(nn.Module):
        def forward(self, x):
            raise ValueError("bad")

    net, calls = Bad(), []
    net.register_forward_hook(lambda m, a, o: calls.append("usual"))
    net.register_forward_hook(lambda m, a, o: calls.append(("always", o)), always_call=True)
    with pytest.raises(ValueError, match="bad"):
        net(g.tensor(X))
    assert calls == [("always", None)]


def test_errors_in_hooks_come_through_with_their_traceback(net):
    def hook(module, args):
        raise LookupError("mine")

    net.register_forward_pre_hook(hook)
    with pytest.raises(LookupError, match="mine") as error:
        net(g.tensor(X))
    assert error.traceback[-1].name == "hook"


def test_full_backward_hooks(net):
    seen = []
    x = g.tensor(X, requires_grad=True)
    net.register_full_backward_pre_hook(lambda m, gout: seen.append(("pre", m, gout)) or (gout[0] * 2,))
    net.register_full_backward_hook(lambda m, gin, gout: seen.append(("full", m, gin, gout)))
    net.register_full_backward_hook(lambda m, gin, gout: (gin[0] * 0 + 7,))
    net(x).sum().backward()
    assert [s[0] for s in seen] == ["pre", "full"] and seen[0][1] is net and seen[1][1] is net
    assert seen[0][2][0].tolist() == [[1, 1, 1]] and seen[1][3][0].tolist() == [[2, 2, 2]]
    assert x.grad.tolist() == [[7, 7, 7]]


def test_a_graph_keeps_the_module_and_its_python_side():
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.note = ["here"]

        def forward(self, x):
            return x * 2

    seen = []

    def make():
        net = Kept()
        net.register_full_backward_hook(lambda m, gin, gout: seen.append((type(m), m.note)))
        return net(g.ones(2, requires_grad=True)).sum()

    loss = make()
    import gc

    gc.collect()
    loss.backward()
    assert seen == [(Kept, ["here"])]


def test_wrong_results_of_hooks_are_errors(net):
    net.register_full_backward_hook(lambda m, gin, gout: "text")
    with pytest.raises(TypeError, match="full backward hook"):
        net(g.tensor(X, requires_grad=True)).sum().backward()
    with pytest.raises(TypeError, match="callable"):
        net.register_forward_hook(3)
    with pytest.raises(NotImplementedError, match="register_full_backward_hook"):
        net.register_backward_hook(lambda *a: None)


@pytest.mark.parametrize("add, expected", [
    (lambda f: modules.register_module_forward_pre_hook(lambda m, a: f(m)), ["Net", "Linear"]),
    (lambda f: modules.register_module_forward_hook(lambda m, a, o: f(m)), ["Linear", "Net"]),
    (lambda f: modules.register_module_full_backward_pre_hook(lambda m, o: f(m)), ["Net", "Linear"]),
    (lambda f: modules.register_module_full_backward_hook(lambda m, i, o: f(m)), ["Linear", "Net"])],
    ids=["forward_pre", "forward", "backward_pre", "backward"])
def test_hooks_of_all_modules(add, expected):
    seen = []
    handle = add(lambda m: seen.append(type(m).__name__))
    try:
        Net()(g.tensor(X, requires_grad=True)).sum().backward()
        assert seen == expected
    finally:
        handle.remove()
    Net()(g.tensor(X))
    assert seen == expected


def test_registration_hooks():
    seen = []
    handles = [modules.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)),
               modules.register_module_buffer_registration_hook(lambda m, name, b: b + 1 if name == "b" else None),
               modules.register_module_module_registration_hook(lambda m, name, child: nn.Tanh() if name == "act" else None)]
    try:
        net = nn.Module()
        net.w = nn.Parameter(g.ones(1))
        net.register_buffer("b", g.zeros(1))
        net.act = nn.ReLU()
        assert seen == ["w"] and net.b.item() == 1 and isinstance(net.act, nn.Tanh)
    finally:
        for handle in handles:
            handle.remove()


# --- saving and loading ---


def test_state_dict_hooks():
    net, seen = Net(), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append((m, prefix, keep)))

    def after(module, state, prefix, metadata):
        state["renamed"] = state.pop("fc.weight")
        metadata["version"] = 2

    net.register_state_dict_post_hook(after)
    state = net.state_dict()
    assert seen == [(net, "", False)] and list(state) == ["fc.bias", "renamed"] and state._metadata[""] == {"version": 2}

    def before(module, state, prefix, metadata, strict, missing, unexpected, errors):
        state["fc.weight"] = state.pop("renamed")
        seen.append((metadata, strict))

    net.register_load_state_dict_pre_hook(before)
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    net.load_state_dict(state)
    assert seen[1] == ({"version": 2}, True)
    del state["fc.bias"]
    assert net.load_state_dict(state).missing_keys == []


# --- listing, removing ---


def test_handles_and_lists(net):
    def log(*args):
        pass

    handle = net.register_forward_hook(log)
    assert net._forward_hooks == {handle.id: log.__qualname__}
    handle.remove()
    handle.remove()
    assert not net._forward_hooks


def test_a_hook_removes_itself(net):
    calls = []

    def once(m, args):
        calls.append(1)
        handle.remove()

    handle = net.register_forward_pre_hook(once)
    net(g.tensor(X))
    net(g.tensor(X))
    assert calls == [1]
