"""Rows of docs/specification/eager.md by their ids. Hooks that throw, grad mode, explicit inputs, and further vectors."""
import functools

import pytest

import grapnel as g
from grapnel.autograd import graph
from hook_tools import leaf, list_of, plus, raising, times

# --- 1.7 hooks that throw ---


def kinds_of_hooks():
    def tensor(x, y):
        y.register_hook(raising)

    def leaf_tensor(x, y):
        x.register_hook(raising)

    def pre(x, y):
        y.grad_fn.register_prehook(raising)

    def post(x, y):
        y.grad_fn.register_hook(raising)

    def post_accumulate(x, y):
        x.register_post_accumulate_grad_hook(raising)

    def multi(x, y):
        graph.register_multi_grad_hook([x, y], raising)

    def multi_any(x, y):
        graph.register_multi_grad_hook([x, y], raising, mode="any")

    return [tensor, leaf_tensor, pre, post, post_accumulate, multi, multi_any]


@pytest.mark.parametrize("register", kinds_of_hooks(), ids=lambda f: f.__name__)
def test_E1_exceptions_arrive_with_type_and_traceback(register):
    x = leaf(2.0)
    y = x * x
    register(x, y)
    with pytest.raises(ZeroDivisionError, match="said by the hook") as caught:
        y.backward()
    assert caught.traceback[-1].name == "raising"


def test_E1_cause_survives():
    def hook(grad):
        try:
            raising()
        except ZeroDivisionError as error:
            raise KeyError("outer") from error

    x = leaf(1.0)
    x.register_hook(hook)
    with pytest.raises(KeyError) as caught:
        (2 * x).backward()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_E2_no_rollback_unless_the_pass_is_all_that_was_recorded(mode):
    a, b = leaf(1.0), leaf(1.0)
    t = 2 * b
    out = a + t
    t.register_hook(raising)
    with pytest.raises(ZeroDivisionError):
        out.backward()
    assert b.grad is None
    assert a.grad is None if mode == "compiled_backward" else a.grad.item() == 1


def test_E3_registrations_are_untouched():
    x, calls = leaf(1.0), []
    x.register_hook(lambda grad: calls.append(1) or (raising() if len(calls) == 1 else None))
    with pytest.raises(ZeroDivisionError):
        (2 * x).backward()
    (2 * x).backward()
    assert len(calls) == 2 and x.grad.item() == 2


def test_E4_a_post_hook_that_throws_once():
    b = leaf(3.0)
    t = b * b
    calls = []

    def once(grad_inputs, grad_outputs):
        calls.append(1)
        if len(calls) == 1:
            raising()

    t.grad_fn.register_hook(once)
    with pytest.raises(ZeroDivisionError):
        t.backward()
    assert b.grad is None
    t.backward()
    assert b.grad.item() == 6


# --- 1.8 grad mode and double backward ---


@pytest.mark.parametrize("create_graph", [False, True])
def test_M1_recording_is_on_when_a_graph_is_made(create_graph):
    x, modes = leaf(1.0), []
    y = x * x
    y.register_hook(lambda grad: modes.append(g.is_grad_enabled()))
    x.register_post_accumulate_grad_hook(lambda p: modes.append(g.is_grad_enabled()))
    y.backward(create_graph=create_graph)
    assert modes == [create_graph] * 2


def test_M2_hooks_are_differentiated():
    x = leaf(3.0)
    y = x * x
    out = 2 * y
    y.register_hook(lambda grad: grad * x)
    (first,) = g.autograd.grad(out, x, create_graph=True)
    (second,) = g.autograd.grad(first, x)
    assert first.item() == 36 and second.item() == 24


def test_M3_identity_of_grad():
    x = leaf(1.0)
    (2 * x).backward()
    before = x.grad
    (2 * x).backward()
    assert x.grad is before
    (x * x).backward(create_graph=True)
    assert x.grad is not before


# --- 1.9 explicit inputs ---


def explicit():
    a = leaf(1.0)
    b = 2 * a
    c = 2 * b
    counts = {"th": 0, "pre": 0, "post": 0}

    def count(kind, result=None):
        def hook(*args):
            counts[kind] += 1
            return result(*args) if result else None

        return hook

    b.register_hook(count("th", times(10)))
    a.register_hook(count("th"))
    for node in (b.grad_fn, graph.get_gradient_edge(a).node):
        node.register_prehook(count("pre"))
        node.register_hook(count("post"))
    return a, b, c, counts


@pytest.mark.parametrize("wanted, grads, counts", [
    ("", (40, None), (2, 2, 2)),
    ("ab", (40, 20), (2, 2, 2)),
    ("b", (None, 20), (1, 1, 1)),
], ids=["X1", "X2", "X3"])
def test_X1_X3_backward_inputs(wanted, grads, counts):
    a, b, c, seen = explicit()
    inputs = [{"a": a, "b": b}[name] for name in wanted]
    c.backward(inputs=inputs or None)
    got = list_of(a.grad), list_of(b.grad)
    assert got == grads and tuple(seen.values()) == counts


@pytest.mark.parametrize("wanted, grads, counts", [("b", [20], (1, 0, 0)), ("a", [40], (2, 1, 1)), ("ab", [40, 20], (2, 1, 1))], ids=["X4", "X5", "X6"])
def test_X4_X6_grad(wanted, grads, counts):
    a, b, c, seen = explicit()
    found = g.autograd.grad(c, [{"a": a, "b": b}[name] for name in wanted])
    assert [t.item() for t in found] == grads and tuple(seen.values()) == counts
    assert a.grad is None


def test_X8_grad_calls_no_post_accumulate_hook():
    x, calls = leaf(1.0), []
    x.register_post_accumulate_grad_hook(calls.append)
    x.register_hook(times(3))
    assert g.autograd.grad(2 * x, x)[0].item() == 6
    assert calls == [] and x.grad is None


def test_X10_retain_grad_for_that_pass_only():
    a = leaf(1.0)
    b = 2 * a
    (2 * b).backward(inputs=[b])
    assert b.grad.item() == 2 and not b.retains_grad


def test_X11_empty_and_unreachable_inputs():
    a, b = leaf(1.0), leaf(1.0)
    with pytest.raises((g.Error, ValueError)):
        (2 * a).backward(inputs=[])
    with pytest.raises(g.Error):
        g.autograd.grad(2 * a, [b])
    assert g.autograd.grad(2 * a, [b], allow_unused=True) == (None,)
    assert g.autograd.grad(2 * a, [b], materialize_grads=True)[0].item() == 0
    (2 * a).backward(inputs=[a, b])
    assert a.grad.item() == 2 and b.grad is None


# --- 1.10 further vectors ---


def test_C1_hook_on_a_leaf():
    x = leaf(1.0)
    x.register_hook(plus(3))
    (3 * (2 * x)).backward()
    assert x.grad.item() == 9


def test_C2_register_remove_register():
    v = leaf([0.0, 0.0, 0.0])
    v.register_hook(times(2)).remove()
    v.register_hook(times(3))
    v.backward(g.tensor([1.0, 2.0, 3.0]))
    assert v.grad.tolist() == [3, 6, 9]


@pytest.mark.parametrize("c, expected", [(88, 88.360039), (99, 99.360039)])
def test_C3_hook_reads_a_captured_object(c, expected):
    class Box:
        value = c

    x = leaf(1.0)
    x.register_hook(lambda grad: grad + Box.value)
    x.sin().sin().backward()
    assert x.grad.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("c, expected", [(88, 47.906642), (99, 53.849968)])
def test_C4_the_same_on_an_intermediate(c, expected):
    x = leaf(1.0)
    y = x.sin()
    y.register_hook(lambda grad: grad + c)
    y.sin().backward()
    assert x.grad.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("k, expected", [(1, 6), (2, 12)])
def test_C5_a_bound_argument(k, expected):
    x = leaf(1.0)
    y = 2 * x
    y.register_hook(functools.partial(lambda grad, *, k: grad * k, k=k))
    (3 * y).backward()
    assert x.grad.item() == expected


def test_C7_the_handle_is_an_object():
    x, kept = leaf(1.0), {}
    kept["handle"] = x.register_hook(times(5))
    same = kept["handle"]
    assert same is kept["handle"] and same == kept["handle"]
    same.remove()
    (2 * x).backward()
    assert x.grad.item() == 2
