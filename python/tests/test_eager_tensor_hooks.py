"""Rows of docs/specification/eager.md by their ids. Tensor hooks: when they fire, what they may return, handles."""
import gc

import pytest

import grapnel as g
from grapnel.autograd import graph
from hook_tools import Record, leaf, plus, times

# --- 1.1 registration and firing ---


def test_T1_fires_once_with_the_sum():
    x, rec = leaf(1.0), Record()
    y = 2 * x
    y.register_hook(rec)
    (3 * y + 4 * y).backward()
    assert rec == [7] and x.grad.item() == 14


def test_T2_acts_before_accumulation():
    v = leaf([0.0, 0.0, 0.0])
    v.register_hook(times(2))
    v.backward(g.tensor([1.0, 2.0, 3.0]))
    assert v.grad.tolist() == [2, 4, 6]


def test_T3_may_be_registered_after_use():
    x = leaf(1.0)
    y = 2 * x
    z = 3 * y
    y.register_hook(times(10))
    z.backward()
    assert x.grad.item() == 60


@pytest.mark.parametrize("first, second, expected", [(plus(1), times(2), 8), (times(2), plus(1), 7)])
def test_T4_order_of_registration(first, second, expected):
    x = leaf(1.0)
    x.register_hook(first)
    x.register_hook(second)
    (3 * x).backward()
    assert x.grad.item() == expected


def test_T4_chain():
    v = leaf([0.0, 0.0, 0.0])
    for hook in (times(4), lambda grad: grad / 2, times(3)):
        v.register_hook(hook)
    v.backward(g.tensor([1.0, 2.0, 3.0]))
    assert v.grad.tolist() == [6, 12, 18]


def test_T5_registered_twice_runs_twice():
    x, double = leaf(1.0), times(2)
    first, second = x.register_hook(double), x.register_hook(double)
    assert first != second
    x.backward(retain_graph=True)
    assert x.grad.item() == 4
    first.remove()
    x.grad = None
    x.backward()
    assert x.grad.item() == 2


def test_T6_state_is_seen_call_by_call():
    calls = 0

    def hook(grad):
        nonlocal calls
        calls += 1
        return grad * grad if calls % 2 == 0 else 2 * grad

    x = leaf(1.0)
    y = 2 * x
    seen = Record()
    y.register_hook(lambda grad: (seen(grad), hook(grad))[1])
    y.register_hook(lambda grad: (seen(grad), hook(grad))[1])
    y.register_hook(seen)
    (3 * y).backward()
    assert calls == 2 and seen == [3, 6, 36] and x.grad.item() == 72


def test_T7_root_receives_the_seed():
    x, rec = leaf([1.0, 2.0]), Record()
    y = 2 * x
    y.register_hook(rec)
    y.backward(g.tensor([5.0, 6.0]))
    assert rec == [[5, 6]]


def test_T8_not_traversed_not_fired():
    a, b = leaf(1.0), leaf(1.0)

    def throw(*_):
        raise AssertionError("must not be called")

    out = a + b + a.clone()
    a.register_hook(throw)
    graph.get_gradient_edge(a).node.register_prehook(throw)
    out.backward(inputs=[b])
    assert b.grad.item() == 1


def test_T9_needs_requires_grad():
    with pytest.raises(g.Error, match="requires? grad"):
        g.tensor(1.0).register_hook(Record())


def test_T10_slots_in_order_of_first_hook():
    x, order = leaf([1.0, 2.0]), []
    a, b = x.unbind()
    b.register_hook(lambda grad: order.append(1))
    a.register_hook(lambda grad: order.append(0))
    (a + b).backward()
    assert order == [1, 0]


def test_T11_leaf_that_stops_wanting_a_gradient():
    x, rec = leaf(1.0), Record()
    y = 2 * x
    x.register_hook(rec)
    x.requires_grad = False
    y.backward()
    assert rec == [2] and x.grad is None


def test_T12_registered_during_the_pass():
    x = leaf(1.0)
    y = 2 * x
    z = 3 * y

    def register(grad):
        y.register_hook(times(10))

    z.register_hook(register)
    z.backward()
    assert x.grad.item() == 60


# --- 1.2 results ---


def test_R1_none_keeps_the_gradient():
    x = leaf(1.0)
    x.register_hook(lambda grad: None)
    (3 * x).backward()
    assert x.grad.item() == 3


def test_R2_the_argument_itself_is_no_change():
    x = leaf(1.0)
    x.register_hook(lambda grad: grad)
    (3 * x).backward()
    assert x.grad.item() == 3


@pytest.mark.parametrize("result, error, text", [
    (lambda grad: g.ones(1), g.Error, "clip"),
    (lambda grad: grad.double(), g.Error, "clip"),
    (lambda grad: 1.5, TypeError, "returned an object of type 'float'"),
    (lambda grad: [grad], TypeError, "returned an object of type 'list'"),
])
def test_R3_results_are_checked(result, error, text):
    x = leaf([1.0, 2.0, 3.0])
    x.register_hook(result, name="clip")
    with pytest.raises(error, match=text):
        (2 * x).sum().backward()
    assert x.grad is None


def test_R5_the_argument_must_not_be_changed():
    x, y = leaf(1.0), leaf(1.0)
    z = x + y

    def spoil(grad):
        grad *= 10

    x.register_hook(spoil)
    with pytest.raises(g.Error, match="in place"):
        z.backward()


def test_R6_the_argument_may_be_kept():
    x, kept = leaf(1.0), []
    x.register_hook(lambda grad: kept.append(grad))
    (2 * x).backward()
    (2 * x).backward()
    assert [t.item() for t in kept] == [2, 2] and x.grad.item() == 4


# --- 1.3 handles ---


def test_H1_remove_is_idempotent():
    v = leaf([0.0, 0.0, 0.0])
    handle = v.register_hook(times(2))
    assert handle.active
    handle.remove()
    handle.remove()
    assert not handle.active
    v.backward(g.tensor([1.0, 2.0, 3.0]))
    assert v.grad.tolist() == [1, 2, 3]


def test_H2_later_passes_accumulate_without_it():
    v, seed = leaf([0.0, 0.0, 0.0]), g.tensor([1.0, 2.0, 3.0])
    handles = [v.register_hook(h) for h in (times(4), lambda grad: grad / 2, times(3))]
    v.backward(seed)
    for handle in handles:
        handle.remove()
    v.backward(seed)
    assert v.grad.tolist() == [7, 14, 21]


def test_H3_handle_as_scope():
    x = leaf(1.0)
    with pytest.raises(KeyError):
        with x.register_hook(times(2)) as handle:
            assert handle.active
            raise KeyError
    assert not handle.active
    (3 * x).backward()
    assert x.grad.item() == 3


def test_H4_remove_after_everything_is_gone():
    x = leaf(1.0)
    handle = (2 * x).register_hook(times(2))
    del x
    handle.remove()
    assert not handle.active


def test_H5_dropping_the_handle_keeps_the_hook():
    x = leaf(1.0)
    x.register_hook(times(2))
    gc.collect()
    (3 * x).backward()
    assert x.grad.item() == 6


@pytest.mark.parametrize("remove, expected", [(False, 60), (True, 6)])
def test_H6_outlives_the_tensor_object(remove, expected):
    x = leaf(1.0)
    y = 2 * x
    z = 3 * y
    handle = y.register_hook(times(10))
    del y
    if remove:
        handle.remove()
    z.backward()
    assert x.grad.item() == expected


def test_H7_lists_are_snapshots():
    x, count = leaf(1.0), []
    handles = []
    x.register_hook(lambda grad: handles[0].remove())
    handles.append(x.register_hook(lambda grad: count.append(1)))
    (2 * x).backward()
    assert len(count) == 1
    (2 * x).backward()
    assert len(count) == 1


def test_H9_a_hook_may_remove_itself():
    t = g.ones(1, 5, requires_grad=True)

    def once(grad):
        handle.remove()
        return g.zeros_like(grad)

    handle = t.register_hook(once)
    t.mean().backward()
    assert t.grad.tolist() == [[0] * 5]
    t.mean().backward()
    assert t.grad.tolist() == [pytest.approx([0.2] * 5)]


def test_H10_ids_are_unique():
    x = leaf(1.0)
    ids = [x.register_hook(Record()).id for _ in range(5)]
    assert ids == sorted(set(ids))
