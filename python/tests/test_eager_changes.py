"""Rows of docs/specification/eager.md by their ids. Tensor hooks through in-place changes and views, retained gradients, undefined gradients."""
import pytest

import grapnel as g
from hook_tools import Record, leaf, times

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
