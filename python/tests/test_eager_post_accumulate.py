"""Rows of docs/specification/eager.md by their ids. Post-accumulate hooks."""
import gc
import weakref

import pytest

import grapnel as g
from grapnel.autograd import graph
from hook_tools import leaf

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
