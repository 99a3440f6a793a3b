"""Rows of docs/specification/eager.md by their ids. Nodes, accumulation and grad mode: the rarer rules."""
import pytest

import grapnel as g
from grapnel.autograd import grad as grad_of
from grapnel.autograd import graph
from hook_tools import leaf, list_of, times


def accumulate_node(x):
    return graph.get_gradient_edge(x).node


# --- 1.7 hooks that throw ---


@pytest.mark.eager_only("anomaly mode describes what fails at once")
def test_E5_anomaly_mode_names_where_the_node_was_made():
    with g.autograd.detect_anomaly():
        x = leaf(1.0)
        y = x.sin()
        y.register_hook(lambda grad: g.ones(3))
        with pytest.raises(g.Error, match="test_eager_node_rows.py"):
            y.backward()


# --- 1.8 grad mode ---


def test_M4_hooks_are_not_copied_to_new_nodes():
    x, calls = leaf(2.0), []
    m = x * x
    m.register_hook(lambda grad: calls.append(1))
    (first,) = grad_of(m, [x], create_graph=True)
    assert len(calls) == 1
    grad_of(first, [x], retain_graph=True)
    assert len(calls) == 1
    (n,) = grad_of(m * m, [x], create_graph=True)
    assert len(calls) == 2
    grad_of(n, [x])
    assert len(calls) == 3  # the second pass goes through m itself


# --- 2 node hooks ---


def test_N5_order_of_registration_and_the_same_list():
    x, log = leaf(1.0), []
    y = x * 2
    y.grad_fn.register_prehook(lambda gs: (log.append("a"), gs)[1])
    y.grad_fn.register_prehook(lambda gs: (log.append("b"), (gs[0] * 5,))[1])
    y.grad_fn.register_hook(lambda made, given: (log.append("c"), made)[1])
    y.grad_fn.register_hook(lambda made, given: (log.append("d"), (made[0] * 7, *made[1:]))[1])
    y.backward()
    assert log == ["a", "b", "c", "d"] and x.grad.item() == 70


def test_N9_registered_while_the_node_runs():
    x, seen = leaf(1.0), []

    class Twice(g.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            ctx.register_hook(lambda made, given: seen.append((list_of(made[0]), list_of(given[0]))))
            return grad * 2

    (3 * Twice.apply(x)).backward()
    assert seen == [(6, 3)]


@pytest.mark.parametrize("made", [lambda grad: (grad, grad), lambda grad: g.ones(3)], ids=["count", "sizes"])
def test_N10_what_a_node_makes_is_checked(made):
    class Wrong(g.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return made(grad)

    x = leaf([1.0, 2.0])
    with pytest.raises(g.Error, match="Wrong"):
        Wrong.apply(x).sum().backward()


def test_N13_hooks_stay_when_the_data_changes():
    x = leaf([1.0, 2.0])
    x.register_hook(times(2))
    accumulate_node(x).register_prehook(lambda gs: (gs[0] * 5,))
    x.data = g.tensor([1.0, 2.0, 3.0])
    x.sum().backward()
    assert x.grad.tolist() == [10, 10, 10]


def test_N14_handles_of_node_hooks():
    x = leaf(1.0)
    y = x * 2
    handle = y.grad_fn.register_prehook(lambda gs: (gs[0] * 5,))
    assert handle.active and isinstance(handle, g.utils.hooks.RemovableHandle)
    with handle:
        y.backward(retain_graph=True)
    assert not handle.active and x.grad.item() == 10
    handle.remove()
    y.backward()
    assert x.grad.item() == 12


def test_N15_tensor_and_node_hooks_keep_their_orders():
    x, log = leaf(1.0), []
    y = x * 2
    for name in "ab":
        y.grad_fn.register_prehook(lambda gs, name=name: log.append("pre " + name))
        y.register_hook(lambda grad, name=name: log.append("th " + name))
    y.backward()
    assert log == ["th a", "th b", "pre a", "pre b"]


def test_N16_a_leaf_has_one_list_of_tensor_hooks():
    x, log = leaf(1.0), []
    same = x.data  # another tensor over the same memory has hooks of its own
    x.register_hook(lambda grad: log.append(1))
    view_of_hooks = graph.hooks_of(x)
    x.register_hook(lambda grad: log.append(2))
    (x * 2).backward()
    assert log == [1, 2] and len(view_of_hooks) == 1 and len(graph.hooks_of(x)) == 2 and not same.requires_grad


# --- 3 post-accumulate hooks ---


def test_A6_not_by_grad_nor_without_accumulation():
    x, calls = leaf(1.0), []
    x.register_post_accumulate_grad_hook(lambda p: calls.append(1))
    grad_of(2 * x, [x])
    other = leaf(1.0)
    (2 * x + 2 * other).backward(inputs=[other])
    assert calls == []
    (2 * x).backward()
    assert calls == [1]


def test_A9_a_leaf_has_a_list_of_them():
    x, log = leaf(1.0), []
    handles = [x.register_post_accumulate_grad_hook(lambda p, i=i: log.append(i)) for i in range(3)]
    handles[1].remove()
    x.backward()
    assert log == [0, 2]


def test_A13_the_rule_for_changing_leaves_holds():
    x = leaf(1.0)

    def hook(p):
        p.mul_(2)

    x.register_post_accumulate_grad_hook(hook)
    with pytest.raises(g.Error, match="leaf"):
        (3 * x).backward(create_graph=True)


@pytest.mark.eager_only("which memory a gradient lies in is decided when a graph has run")
def test_A15_a_buffer_that_the_hook_keeps_is_copied():
    x, kept = leaf([1.0, 2.0]), []
    x.register_hook(lambda grad: kept.append(grad))
    (x * 2).sum().backward()
    assert x.grad.data_ptr() != kept[0].data_ptr()
    x.grad.mul_(100)
    assert kept[0].tolist() == [2, 2]


def test_A16_added_to_in_place():
    x = leaf([1.0, 2.0])
    (x * 2).sum().backward()
    before = x.grad
    (x * 2).sum().backward()
    assert x.grad is before and before.tolist() == [4, 4]
    ((x * x).sum()).backward(create_graph=True)
    assert x.grad is not before and before.tolist() == [4, 4] and x.grad.tolist() == [6, 8]


def test_A17_a_seed_is_neither_adopted_nor_changed():
    x, seed = leaf([1.0, 2.0]), g.tensor([5.0, 6.0])

    def hook(p):
        p.grad.mul_(10)

    x.register_post_accumulate_grad_hook(hook)
    x.backward(seed)
    assert seed.tolist() == [5, 6] and x.grad.tolist() == [50, 60] and x.grad is not seed


def test_A18_the_post_hook_is_given_the_adopted_buffer():
    x, seen = leaf([1.0, 2.0]), []
    accumulate_node(x).register_hook(lambda made, given: seen.append(list_of(given[0])))

    def hook(p):
        p.grad.add_(0.5)

    x.register_post_accumulate_grad_hook(hook)
    (x * 2).sum().backward()
    assert seen == [[2.5, 2.5]] and x.grad.tolist() == [2.5, 2.5]
