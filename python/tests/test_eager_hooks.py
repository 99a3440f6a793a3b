"""The rows of the specification of hooks (spec/eager-hooks.md), by their numbers, as far as they can be said in Python."""
import functools
import gc
import math
import weakref

import pytest

import grapnel as g
from grapnel.autograd import backward, graph


def leaf(value):
    return g.tensor(value, requires_grad=True)


def list_of(t):
    return None if t is None else t.tolist()


class Record(list):
    """A hook that only remembers what it was given."""

    def __call__(self, grad):
        self.append(list_of(grad))


def times(k):
    return lambda grad: grad * k


def plus(k):
    return lambda grad: grad + k


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


# --- 1.4 in-place changes and views ---


def test_P1_bound_to_the_version():
    a, h1, h2 = leaf(1.0), Record(), Record()
    b = a.clone()
    b.register_hook(lambda grad: (h1(grad), grad * 2)[1])
    b *= 2
    b.register_hook(lambda grad: (h2(grad), grad * 2)[1])
    b.backward()
    assert h2 == [1] and h1 == [4] and a.grad.item() == 8


def test_P2_any_number_of_changes():
    a, rec = leaf(1.0), Record()
    b = a.clone()
    b.register_hook(lambda grad: (rec(grad), grad * 2)[1])
    b *= 2
    b *= 2
    b.backward()
    assert rec == [4] and a.grad.item() == 8


def test_P4_only_the_changed_output_moves():
    x = leaf([2.0, 3.0])
    o1, o2 = (x * 1.0).unbind()
    r0, r1, r2 = Record(), Record(), Record()
    o2.register_hook(r1)
    (o1 * 1 + 3 * o2).backward()
    assert r1 == [3] and r0 == r2 == []


def test_P5_in_place_through_a_view():
    a, rec = leaf([1.0]), Record()
    b = a.clone()
    b.register_hook(rec)
    v = b[:]
    v *= 2
    b.sum().backward()
    assert rec == [[2]] and a.grad.tolist() == [2]


def test_P6_hooks_of_views_are_never_lost_silently():
    b = leaf([1.0]).clone()
    v1, v2 = b[:], b[:]
    v2.register_hook(Record())
    with pytest.raises(g.Error):
        v1 *= 2


def test_P7_registration_on_a_stale_view():
    x0 = leaf([1.0, 1.0])
    x = x0.clone()
    v = x.view(2)
    x[:] += 1
    v.register_hook(lambda grad: grad)
    v.sum().backward()
    assert x0.grad.tolist() == [1, 1]


# --- 1.5 retain-grad ---


def test_G1_no_op_on_leaves_and_idempotent():
    x = leaf(1.0)
    x.retain_grad()
    y = 2 * x
    y.retain_grad()
    y.retain_grad()
    y.backward()
    assert y.grad.item() == 1 and x.grad.item() == 2
    with pytest.raises(g.Error):
        g.tensor(1.0).retain_grad()


def test_G2_after_all_tensor_hooks():
    b = leaf(1.0).clone()
    b.register_hook(times(2))
    b.retain_grad()
    b.register_hook(times(2))
    b.clone().backward()
    assert b.grad.item() == 4


def test_G3_before_node_pre_hooks():
    b, order = leaf(1.0).clone(), []
    b.grad_fn.register_prehook(lambda grads: (order.append("pre"), tuple(x * 2 for x in grads))[1])
    b.register_hook(lambda grad: (order.append("th"), grad * 3)[1])
    b.grad_fn.register_prehook(lambda grads: order.append("pre"))
    b.retain_grad()
    b.clone().backward()
    assert b.grad.item() == 3 and order == ["th", "pre", "pre"]


def test_G4_later_passes_add_out_of_place():
    i = leaf(1.0)
    h = 3 * i
    h.retain_grad()
    out = h * h
    out.backward(retain_graph=True)
    first = h.grad
    assert first.item() == 6
    out.backward()
    assert h.grad.item() == 12 and first.item() == 6 and h.grad is not first


def test_G5_follows_the_tensor():
    a = leaf(1.0).clone()
    a.retain_grad()
    a *= 2
    a *= 2
    a.backward()
    assert a.grad.item() == 1


def test_G8_fires_on_traversal():
    a = leaf(1.0)
    b = 2 * a
    c = 2 * b
    b.retain_grad()
    (found,) = g.autograd.grad(c, [b])
    assert found.item() == 2 and b.grad.item() == 2


def test_G9_with_in_place_changes_and_hooks():
    a, seen = leaf(1.0).clone(), []
    a.register_hook(lambda grad: seen.append(("h1", grad.item())))
    a.retain_grad()
    a.register_hook(lambda grad: seen.append(("h2", grad.item())))
    a *= 2
    a.register_hook(lambda grad: seen.append(("h3", grad.item())))
    (a + 1).backward()
    assert seen == [("h3", 1), ("h1", 2), ("h2", 2)] and a.grad.item() == 1


# --- 1.6 undefined gradients ---


def test_U1_hooks_of_other_slots_get_none():
    x, rec = leaf([1.0] * 5), Record()
    parts = x.unbind()
    parts[0].register_hook(rec)
    parts[0].backward(retain_graph=True)
    assert rec == [1] and x.grad.tolist() == [1, 0, 0, 0, 0]
    parts[1].backward()
    assert rec == [1, None] and x.grad.tolist() == [1, 1, 0, 0, 0]


def test_U2_none_cannot_become_a_gradient():
    x = leaf([1.0, 2.0])
    a, b = x.unbind()
    a.register_hook(lambda grad: g.ones(()) if grad is None else grad)
    with pytest.raises(g.Error):
        b.backward()


# --- 1.7 hooks that throw ---


def raising(*_):
    raise ZeroDivisionError("said by the hook")


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


# --- 2 node hooks ---


def test_N1_pre_hook_replaces_all():
    x, calls = leaf([1.0, 2.0]), []
    a, b = x.unbind()

    def double(grads):
        calls.append(len(grads))
        return tuple(2 * grad for grad in grads)

    a.grad_fn.register_prehook(double)
    (a + 3 * b).backward()
    assert calls == [2] and x.grad.tolist() == [2, 6]


def test_N2_chains_of_pre_and_post_hooks():
    a, seen = leaf(1.0), []
    b = 2 * a
    node = b.grad_fn
    for hook in (lambda gs: (2 * gs[0],), lambda gs: None, lambda gs: gs, lambda gs: [2 * gs[0]], lambda gs: (2 * gs[0],)):
        node.register_prehook(hook)
    for _ in range(2):
        node.register_hook(lambda inputs, outputs: seen.append((outputs[0].item(), inputs[0].item())))
    b.backward()
    assert seen == [(8, 16)] * 2 and a.grad.item() == 16


def test_N3_entries_may_become_none():
    x = leaf([1.0, 2.0, 3.0])
    parts = x.unbind()
    parts[0].grad_fn.register_prehook(lambda gs: (2 * gs[0], None, 2 * gs[2]))
    (parts[0] + parts[1] + parts[2]).backward()
    assert x.grad.tolist() == [2, 0, 2]


@pytest.mark.parametrize("result, error", [((), g.Error), ((1, 2), TypeError), ("x", TypeError), (5, TypeError)])
def test_N4_wrong_results(result, error):
    x = leaf(1.0)
    y = 2 * x
    y.grad_fn.register_hook(lambda inputs, outputs: result)
    with pytest.raises(error):
        y.backward()


def test_N4_wrong_length():
    x = leaf(1.0)
    y = 2 * x
    y.grad_fn.register_hook(lambda inputs, outputs: (outputs[0], outputs[0], outputs[0]))
    with pytest.raises(g.Error):
        y.backward()


def test_N6_order_around_nodes():
    a, log = leaf(1.0), []
    b = 2 * a
    b.grad_fn.register_prehook(lambda gs: log.append("b.pre"))
    b.register_hook(lambda grad: log.append("b.th"))
    b.grad_fn.register_prehook(lambda gs: log.append("b.pre"))
    a.register_hook(lambda grad: log.append("a.th"))
    node = graph.get_gradient_edge(a).node
    node.register_prehook(lambda gs: log.append("a.pre"))
    a.register_hook(lambda grad: log.append("a.th"))
    b.backward(retain_graph=True)
    assert log == ["b.th", "b.pre", "b.pre", "a.th", "a.th", "a.pre"]
    log.clear()
    g.autograd.grad(b, [a])
    assert log == ["b.th", "b.pre", "b.pre", "a.th", "a.th"]


def test_N7_chain():
    a = leaf(1.0)
    b = 2 * a
    c = 2 * b
    b.register_hook(times(10))
    b.retain_grad()
    b.grad_fn.register_prehook(lambda gs: (3 * gs[0],))
    b.grad_fn.register_hook(lambda inputs, outputs: tuple(None if t is None else 5 * t for t in inputs))
    c.backward()
    assert b.grad.item() == 20 and a.grad.item() == 600


def test_N8_removal_in_flight():
    a = leaf(1.0)
    b = 2 * a
    calls, handles = [], []
    b.grad_fn.register_prehook(lambda gs: [h.remove() for h in handles] and None)
    handles.append(b.grad_fn.register_prehook(lambda gs: calls.append(2)))
    gone = b.grad_fn.register_prehook(lambda gs: calls.append(3))
    gone.remove()
    handles.append(gone)
    b.backward(retain_graph=True)
    assert calls == [2]
    b.backward()
    assert calls == [2]


def test_N11_accumulate_node():
    a, seen = leaf(1.0), []
    a.register_hook(times(2))
    node = graph.get_gradient_edge(a).node
    assert node.variable is a
    node.register_prehook(lambda gs: seen.append([t.item() for t in gs]))
    node.register_hook(lambda inputs, outputs: seen.append((len(inputs), outputs[0].item())))
    a.backward()
    assert seen == [[2], (0, 2)]


def test_N12_node_hooks_of_a_leaf_stay():
    a, calls = leaf(1.0), []
    graph.get_gradient_edge(a).node.register_prehook(lambda gs: calls.append(1))
    gc.collect()
    (2 * a).backward()
    assert calls == [1]


# --- 3 post-accumulate hooks ---


def test_A1_only_for_leaves():
    for t in (2 * leaf(1.0), g.tensor(1.0)):
        with pytest.raises(g.Error):
            t.register_post_accumulate_grad_hook(lambda p: None)


def test_A2_A3_gets_the_leaf_once():
    p, seen = leaf(1.0), []
    p.register_post_accumulate_grad_hook(lambda x: seen.append((x is p, x.grad.item())))
    (2 * p + 3 * p).backward()
    assert seen == [(True, 5)]


def test_A4_order():
    t = leaf([0.5])

    def subtract(p):
        p -= p.grad

    def scale(p):
        p *= 4

    t.register_post_accumulate_grad_hook(subtract)
    t.register_post_accumulate_grad_hook(scale)
    t.sum().backward()
    assert t.tolist() == [-2]


def test_A5_returns_nothing():
    t = leaf(1.0)
    t.register_post_accumulate_grad_hook(lambda p: p.grad)
    with pytest.raises(TypeError, match="returned an object of type 'Tensor'|post-accumulate"):
        (2 * t).backward()


def test_A7_captures_live_as_long_as_the_leaf():
    class Witness:
        def __call__(self, p):
            pass

    t, witness = leaf(1.0), Witness()
    seen = weakref.ref(witness)
    t.register_post_accumulate_grad_hook(witness)
    del witness
    gc.collect()
    assert seen() is not None
    del t
    gc.collect()
    assert seen() is None


def test_A8_V2_between_pre_and_post():
    t = leaf([0.0])
    node = graph.get_gradient_edge(t).node
    t.register_hook(lambda grad: grad - 2)
    node.register_prehook(lambda gs: (gs[0] / 5,))

    def raise_grad(p):
        p.grad += 0.5

    def post(inputs, outputs):
        t.grad = 10 * outputs[0]

    t.register_post_accumulate_grad_hook(raise_grad)
    node.register_hook(post)
    t.sum().backward()
    assert t.grad.tolist() == pytest.approx([3.0])


def test_A10_nested_pass_from_the_hook():
    p, calls = leaf(1.0), []

    def hook(x):
        calls.append(1)
        if len(calls) == 1:
            with g.enable_grad():
                (3 * x).backward()

    p.register_post_accumulate_grad_hook(hook)
    (2 * p).backward()
    assert len(calls) == 2 and p.grad.item() == 5


def test_A11_V1_changes_leaf_and_grad():
    x, seed = leaf([0.5, 0.5, 0.5]), g.tensor([2.0, 2.0, 2.0])

    def hook(p):
        p *= p.grad
        p.grad *= 5

    x.register_post_accumulate_grad_hook(hook)
    x.backward(seed)
    assert x.tolist() == [1, 1, 1] and x.grad.tolist() == [10, 10, 10] and seed.tolist() == [2, 2, 2]


def test_A12_optimizer_step_inside_backward():
    p = leaf(1.0)

    def step(x):
        x -= 0.1 * x.grad
        x.grad = None

    handle = p.register_post_accumulate_grad_hook(step)
    (3 * p).backward()
    assert p.item() == pytest.approx(0.7) and p.grad is None
    (3 * p).backward()
    assert p.item() == pytest.approx(0.4)
    handle.remove()
    (3 * p).backward()
    assert p.item() == pytest.approx(0.4) and p.grad.item() == 3


def test_A14_saved_copies_are_stale_afterwards():
    p, x = leaf(2.0), leaf(5.0)
    y = p * x

    def step(q):
        q -= 0.1 * q.grad

    p.register_post_accumulate_grad_hook(step)
    y.backward(retain_graph=True)
    with pytest.raises(g.Error):
        y.backward()


def test_V3_free_in_a_loop():
    x = g.ones(10, requires_grad=True)

    def double(p):
        p.grad *= 2

    x.register_post_accumulate_grad_hook(double)
    for i in range(5):
        x.grad = None
        (x * i).sum().backward()
        assert x.grad.tolist() == [2 * i] * 10


# --- 4.1 multi-gradient hooks ---


def test_K1_all():
    t1, t2, t3, t4 = leaf(1.0), leaf(2.0), leaf(5.0), leaf(1.0)
    calls = []
    handle = graph.register_multi_grad_hook((t1, t2, t3, t4), lambda grads: calls.append([list_of(x) for x in grads]))
    out = t2 * t3
    out.backward(inputs=[t2, t3], retain_graph=True)
    assert calls == [[None, 5, 2, None]]
    out.backward(inputs=[t1, t4], retain_graph=True)
    assert len(calls) == 1
    out.backward(inputs=[t1, t3], retain_graph=True)
    assert calls[1] == [None, None, 2, None]
    handle.remove()
    out.backward()
    assert len(calls) == 2


def test_K2_any():
    z, calls = leaf(1.0), []
    y = z * 1
    graph.register_multi_grad_hook((y.sin(), y.cos()), lambda grad: calls.append("other"), mode="any")
    a, b = y.sin(), y.cos()
    graph.register_multi_grad_hook((a, b), lambda grad: calls.append("any"), mode="any")
    y.register_hook(lambda grad: calls.append("th"))
    (a + b).backward()
    assert calls == ["any", "th"]


def test_K3_result_is_ignored_and_mode_is_checked():
    x = leaf(1.0)
    graph.register_multi_grad_hook([x], lambda grads: grads[0] * 100)
    (2 * x).backward()
    assert x.grad.item() == 2
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook([x], print, mode="some")


def test_K6_one_handle_for_all():
    x, calls = leaf(1.0), []
    handle = graph.register_multi_grad_hook([x, x], lambda grads: calls.append(len(grads)))
    (2 * x).backward()
    assert calls == [2]
    handle.remove()
    (2 * x).backward()
    assert calls == [2]


# --- 4.2 saved-tensor hooks ---


def test_S1_S2_pack_and_unpack_counts():
    packs, unpacks = [], []

    def pack(t):
        packs.append(t)
        return t

    def unpack(t):
        unpacks.append(t)
        return t

    x, y = leaf(2.0), g.tensor(3.0)
    with graph.saved_tensors_hooks(pack, unpack):
        z = x * y
    assert (len(packs), len(unpacks)) == (1, 0)
    z.backward()
    assert (len(packs), len(unpacks)) == (1, 1) and x.grad.item() == 3
    with graph.saved_tensors_hooks(pack, unpack):
        x * x
    assert len(packs) == 3


@pytest.mark.parametrize("pack, unpack, factor", [(lambda t: 2 * t, lambda t: t / 2, 2), (lambda t: 2 * t, lambda t: t, 4)])
def test_S3_gradients_use_what_unpack_returns(pack, unpack, factor):
    a = leaf(5.0)
    with graph.saved_tensors_hooks(pack, unpack):
        y = a * a
    y.backward()
    assert a.grad.item() == factor * 5


def test_S3_packed_may_be_anything():
    a = leaf(5.0)
    with graph.saved_tensors_hooks(lambda t: {"value": t.item()}, lambda packed: g.tensor(packed["value"])):
        y = a * a
    y.backward()
    assert a.grad.item() == 10


def test_S4_pack_runs_without_recording():
    modes = []
    with graph.saved_tensors_hooks(lambda t: (modes.append(g.is_grad_enabled()), t)[1], lambda t: t):
        leaf(1.0).sin()
    assert modes == [False]


def test_S5_only_the_innermost_pair():
    a, b = leaf(1.0), leaf(1.0)
    with graph.saved_tensors_hooks(lambda t: 3 * t, lambda t: 3 * t):
        with graph.saved_tensors_hooks(lambda t: 5 * t, lambda t: 5 * t):
            y = a * a
        z = b * b
    y.backward()
    z.backward()
    assert a.grad.item() == 50 and b.grad.item() == 18


def test_S7_numbers_are_not_packed():
    def throw(*_):
        raise AssertionError("must not be called")

    a = leaf(2.0)
    with graph.saved_tensors_hooks(throw, throw):
        y = a * 3
    y.backward()
    assert a.grad.item() == 3


def test_S8_errors():
    a = leaf(1.0)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 5):
        y = a * a
    with pytest.raises(TypeError, match="unpack hook"):
        y.backward()
    with graph.saved_tensors_hooks(raising, lambda t: t):
        with pytest.raises(ZeroDivisionError):
            a * a
    with graph.saved_tensors_hooks(lambda t: t, raising):
        y = a * a
    with pytest.raises(ZeroDivisionError):
        y.backward()
    with pytest.raises(TypeError):
        graph.saved_tensors_hooks(1, 2)


def test_S10_disable():
    with graph.disable_saved_tensors_hooks("outer"):
        with graph.disable_saved_tensors_hooks("inner words"):
            with pytest.raises(g.Error, match="inner words"):
                with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                    pass
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


def test_S12_unbalanced_scopes():
    for _ in range(10):
        a, scopes = leaf(1.0), []

        def unpack(t):
            scope = graph.saved_tensors_hooks(lambda t: t, lambda t: t)
            scope.__enter__()
            scopes.append(scope)
            return t

        with graph.saved_tensors_hooks(lambda t: t, unpack):
            y = a.exp()
        y.backward()
        for scope in reversed(scopes):
            scope.__exit__(None, None, None)
            scope.__exit__(None, None, None)


# --- 4.3 anomaly mode ---


def test_Y1_nests_and_restores():
    assert not g.is_anomaly_enabled()
    with g.autograd.detect_anomaly():
        with g.autograd.set_detect_anomaly(True, check_nan=False):
            assert g.is_anomaly_enabled() and not g.is_anomaly_check_nan_enabled()
        assert g.is_anomaly_check_nan_enabled()
    assert not g.is_anomaly_enabled()


def test_Y4_a_nan_is_caught_where_it_is_born():
    x = leaf(0.0)
    with g.autograd.detect_anomaly():
        y = (x * 0).sqrt() * 0
        with pytest.raises(g.Error, match="nan|NaN"):
            y.backward()
            x.grad.item()  # which runs what was recorded
    x = leaf(0.0)
    with g.autograd.detect_anomaly(check_nan=False):
        y = (x * 0).sqrt() * 0
        y.backward()
    assert math.isnan(x.grad.item())


# --- 4.4 re-entrancy ---


def test_Z1_a_hook_may_start_a_pass():
    p = leaf(2.0)
    t = p * p

    def hook(grad):
        handle.remove()
        inner = grad.detach().requires_grad_()
        with g.enable_grad():
            (2 * inner + 5).backward()
        return inner.grad + grad

    handle = t.register_hook(hook)
    t.backward()
    assert p.grad.item() == 12


def test_Z4_errors_of_the_inner_pass():
    x = leaf(1.0)
    y = leaf(1.0)
    y.register_hook(raising)

    def hook(grad):
        with g.enable_grad(), pytest.raises(ZeroDivisionError):
            (2 * y).backward()

    x.register_hook(hook)
    (2 * x).backward()
    assert x.grad.item() == 2


def test_Z5_end_of_pass_callbacks():
    x, log = leaf(1.0), []

    def hook(grad):
        g.autograd.queue_callback(lambda: (log.append("first"), g.autograd.queue_callback(lambda: log.append("third"))))
        g.autograd.queue_callback(lambda: log.append("second"))

    x.register_hook(hook)
    (2 * x).backward()
    assert log == ["first", "second", "third"]
    with pytest.raises(g.Error):
        g.autograd.queue_callback(lambda: None)


# --- 6 the order of everything ---


def test_order_around_one_node():
    log = []
    a = leaf(1.0)
    b = a.sin()
    b.grad_fn.register_hook(lambda inputs, outputs: log.append("post"))
    b.grad_fn.register_prehook(lambda gs: log.append("pre"))
    b.register_hook(lambda grad: log.append("th"))
    graph.register_multi_grad_hook([b], lambda grads: log.append("multi"))
    node = graph.get_gradient_edge(a).node
    node.register_hook(lambda inputs, outputs: log.append("a.post"))
    a.register_post_accumulate_grad_hook(lambda p: log.append("a.pa"))
    node.register_prehook(lambda gs: log.append("a.pre"))
    a.register_hook(lambda grad: log.append("a.th"))
    backward([b])
    assert log == ["th", "multi", "pre", "post", "a.th", "a.pre", "a.pa", "a.post"]
