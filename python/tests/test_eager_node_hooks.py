"""Rows of docs/specification/eager.md by their ids. Hooks of nodes."""
import gc

import pytest

import grapnel as g
from grapnel.autograd import graph
from hook_tools import leaf, times

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
