"""Rows of docs/specification/eager.md by their ids. What results may be, handles, changes and retained gradients: the rarer rules."""
import pickle
import warnings

import pytest

import grapnel as g
from grapnel.autograd import grad as grad_of
from grapnel.autograd import graph
from hook_tools import Record, leaf, list_of, times


# --- 1.2 results ---


def test_R4_strides_and_requires_grad_of_results_are_free():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    x.register_hook(lambda grad: (grad * g.tensor([[1.0, 2.0], [3.0, 4.0]])).t().contiguous().t())
    x.sum().backward()
    assert x.grad.tolist() == [[1, 2], [3, 4]]
    y = leaf([1.0, 2.0])
    y.register_hook(lambda grad: grad.detach().clone().requires_grad_())
    (2 * y).sum().backward()
    assert y.grad.tolist() == [2, 2]


@pytest.mark.parametrize("result", [[1.0], [[1.0, 1.0, 1.0]], 1.0], ids=["one", "row", "number"])
def test_R4_results_are_neither_broadcast_nor_summed(result):
    x = leaf([1.0, 2.0, 3.0])
    x.register_hook(lambda grad: g.tensor(result))
    with pytest.raises(g.Error):
        x.sum().backward()


# --- 1.3 handles ---


@pytest.mark.parametrize("kind", ["post_accumulate", "node_pre", "node_post"])
def test_H8_every_list_is_a_snapshot(kind):
    x, calls, handles = leaf(1.0), [], []
    y = x.clone()
    register = {"post_accumulate": x.register_post_accumulate_grad_hook, "node_pre": y.grad_fn.register_prehook, "node_post": y.grad_fn.register_hook}[kind]

    def first(*_):
        calls.append("first")
        handles[1].remove()
        register(lambda *_: calls.append("added"))

    handles.append(register(first))
    handles.append(register(lambda *_: calls.append("second")))
    y.backward(retain_graph=True)
    assert calls == ["first", "second"]
    handles[0].remove()
    y.backward()
    assert calls == ["first", "second", "added"]


@pytest.mark.eager_only("pickles read values")
def test_H11_not_copied_nor_written_to_files():
    x = leaf(1.0)
    x.register_hook(times(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = pickle.loads(pickle.dumps(x))
    assert x.clone().detach().requires_grad_() is not x and graph.hooks_of(read) == []
    copy = x.detach().clone().requires_grad_()
    (3 * copy + 3 * read).backward()
    assert copy.grad.item() == 3 and read.grad.item() == 3


def test_H12_ids_only_grow():
    x, y = leaf(1.0), leaf(1.0)
    ids = [x.register_hook(times(2)).id, y.register_post_accumulate_grad_hook(lambda p: None).id,
           graph.get_gradient_edge(x).node.register_prehook(lambda gs: None).id, x.register_hook(times(2)).id]
    assert ids == sorted(set(ids))


# --- 1.4 in-place changes and views ---


def test_P3_unrecorded_changes_move_nothing():
    x, rec = leaf(1.0), Record()
    y = 2 * x
    y.register_hook(rec)
    with g.no_grad():
        y.mul_(10)
    (3 * y).backward()
    assert rec == [3] and x.grad.item() == 6


# --- 1.5 retained gradients ---


def test_G6_through_views_and_their_bases():
    x = leaf([1.0, 2.0])
    base = x.clone()
    base.retain_grad()
    base[:].mul_(2)
    base.sum().backward()
    assert base.grad.tolist() == [1, 1] and x.grad.tolist() == [2, 2]
    base = x.clone()
    view = base[:]
    view.retain_grad()
    base.mul_(2)
    view.sum().backward()
    assert view.grad.tolist() == [1, 1] and x.grad.tolist() == [4, 4]


def test_G7_nothing_is_written_for_an_undefined_gradient():
    x = leaf([1.0, 2.0])
    a, b = x.unbind()
    a.retain_grad()
    b.backward()
    assert a.grad is None and x.grad.tolist() == [0, 1]


def test_G7_the_tensor_is_held_weakly():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.retain_grad()
    z = y.sum()
    del y
    z.backward()
    assert x.grad.tolist() == [2, 2]


def test_G10_kept_by_tensor_and_not_by_slot():
    x = leaf([1.0, 1.0])
    first, second = x.split(1)
    second = second * 1
    second.retain_grad()
    second.mul_(2)
    (first + second).sum().backward()
    assert second.grad.tolist() == [1] and x.grad.tolist() == [1, 2]


# --- 1.6 undefined gradients ---


def test_U3_nodes_without_any_gradient_hand_on_none():
    seen = []

    class Nothing(g.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return None

    x = leaf(1.0)
    x.register_hook(lambda grad: seen.append(("th", grad)))
    x.register_post_accumulate_grad_hook(lambda p: seen.append("pa"))
    graph.get_gradient_edge(x).node.register_prehook(lambda gs: seen.append(("pre", gs)))
    Nothing.apply(x).backward()
    assert seen == [("th", None), ("pre", (None,))] and x.grad is None


# --- 1.9 explicit inputs ---


def test_X7_tensor_hooks_when_reached_node_hooks_when_executed():
    a, log = leaf(1.0), []
    b = a * 2
    b.register_hook(lambda grad: log.append("th"))
    b.grad_fn.register_prehook(lambda gs: log.append("pre"))
    c = b * 3
    grad_of(c, [b], retain_graph=True)
    assert log == ["th"]
    grad_of(c, [a])
    assert log == ["th", "th", "pre"]


def test_X9_grad_takes_its_values_after_the_hooks():
    a = leaf(1.0)
    b = a * 2
    b.register_hook(times(10))
    b.retain_grad()
    (value,) = grad_of(b * 3, [b])
    assert value.item() == 30 and b.grad.item() == 30


# --- 1.10 further vectors ---


def test_C6_a_hook_whose_callable_is_replaced_between_passes():
    x, factor = leaf(1.0), [1.0]
    y = x * 2

    def hook(grad):
        return grad * factor[0] + grad * 0

    y.register_hook(hook)
    y.register_hook(hook)
    (3 * y).backward(retain_graph=True)
    assert x.grad.item() == 6
    factor[0] = 2.0
    x.grad = None
    (3 * y).backward()
    assert x.grad.item() == 24


def test_C6_two_callables():
    x, now = leaf(1.0), [times(1)]
    y = x * 2
    for _ in range(2):
        y.register_hook(lambda grad: now[0](grad))
    (3 * y).backward(retain_graph=True)
    assert list_of(x.grad) == 6
    now[0] = times(2)
    (3 * y).backward()
    assert list_of(x.grad) == 30
