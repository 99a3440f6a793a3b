"""Cycles through the graph, in Python and in C++: each is collected, whichever of its objects is let go last, and memory stays flat over
10,000 of them. What is in use stays."""
import gc
import weakref

import pytest

import grapnel as g
from grapnel.autograd import Function, graph
from hook_tools import rss


class Witness:
    """Something whose end can be seen."""


def leaf():
    return g.ones(3, requires_grad=True)


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def nothing(*captured):
    """A hook that captures things."""
    return lambda *_: (captured, None)[1]


def hook_captures_its_tensor(w):
    y = leaf() * 2
    y.register_hook(nothing(y, w))
    return [y]


def hook_captures_a_later_result(w):
    x, box = leaf(), []
    y = x * 2
    y.register_hook(nothing(box, w))
    box.append(y.sum())
    return [x, y, box[0]]


def hook_captures_a_later_node(w):
    y = leaf() * 2
    z = y * 3
    y.register_hook(nothing(z.grad_fn, w))
    return [y, z]


def hook_captures_an_earlier_node(w):
    y = leaf() * 2
    z = y * 3
    z.register_hook(nothing(y.grad_fn, w))
    return [y, z]


def node_hook_captures_its_node(w):
    y = leaf() * 2
    y.grad_fn.register_hook(nothing(y.grad_fn, w))
    return [y, y.grad_fn]


def node_pre_hook_captures_the_tensor(w):
    y = leaf() * 2
    y.grad_fn.register_prehook(nothing(y, w))
    return [y, y.grad_fn]


def leaf_hook_captures_a_result(w):
    x = leaf()
    y = x * x  # which saves x
    x.register_hook(nothing(y, w))
    return [x, y]


def accumulate_node_hook(w):
    x = leaf()
    node = graph.get_gradient_edge(x).node
    node.register_hook(nothing(node, x, w))
    return [x, node]


def ctx_keeps_the_output(w):
    y = Double.apply(leaf())
    y.grad_fn.kept = y, w
    return [y, y.grad_fn]


def ctx_keeps_itself(w):
    y = Double.apply(leaf())
    y.grad_fn.kept = y.grad_fn, w
    return [y, y.grad_fn]


def hook_behind_a_function(w):
    y = Double.apply(leaf() * 3)
    z = Double.apply(y * 1)
    y.register_hook(nothing(z, w))
    return [y, z]


def node_metadata(w):
    y = leaf() * 2
    node = y.grad_fn
    node.metadata["kept"] = y, w
    node.register_hook(nothing(node))
    return [y, node]


def packed_value_captures_the_result(w):
    box = []
    x = leaf()
    with graph.saved_tensors_hooks(lambda t: (t.detach(), box, w), lambda packed: packed[0]):
        y = x * x
    box.append(y)
    return [x, y]


def view_of_a_base(w):
    base = leaf() * 2
    view = base[:2]
    view.register_hook(nothing(view, base, w))
    return [base, view]


def changed_in_place(w):
    y = leaf() * 2
    y.register_hook(nothing(y, w))
    y.mul_(3)
    y.register_hook(nothing(y))
    return [y]


def retained_gradient_points_back(w):
    x = leaf()
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    y.grad.kept = y, w
    return [x, y]


def two_hooks_on_one_node(w):
    first, second, _ = leaf().unbind()
    first.register_hook(nothing(second, w))
    second.register_hook(nothing(first))
    return [first, second]


SHAPES = [hook_captures_its_tensor, hook_captures_a_later_result, hook_captures_a_later_node, hook_captures_an_earlier_node, node_hook_captures_its_node,
          node_pre_hook_captures_the_tensor, leaf_hook_captures_a_result, accumulate_node_hook, ctx_keeps_the_output, ctx_keeps_itself, hook_behind_a_function,
          node_metadata, packed_value_captures_the_result, view_of_a_base, changed_in_place, retained_gradient_points_back, two_hooks_on_one_node]
shapes = pytest.mark.parametrize("make", SHAPES, ids=lambda f: f.__name__)


def made(make):
    """What a shape is made of, and its witness."""
    witness = Witness()
    return make(witness), weakref.ref(witness)


@shapes
def test_is_collected_whichever_goes_last(make):
    for last in range(len(made(make)[0])):
        parts, seen = made(make)
        kept = parts[last]
        del parts
        gc.collect()
        assert kept is not None
        del kept
        gc.collect()
        assert seen() is None


@shapes
def test_is_collected_after_a_pass(make):
    for retain in (False, True):
        parts, seen = made(make)
        roots = [t for t in parts if isinstance(t, g.Tensor) and not t.is_leaf]
        if make is not retained_gradient_points_back and roots:
            roots[-1].sum().backward(retain_graph=retain)
        del parts, roots
        gc.collect()
        assert seen() is None


@pytest.mark.parametrize("make", [f for f in SHAPES if f is not retained_gradient_points_back], ids=lambda f: f.__name__)
def test_stays_while_it_is_used(make):
    parts, seen = made(make)
    roots = [t for t in parts if isinstance(t, g.Tensor) and not t.is_leaf]
    root = (roots[-1] if roots else parts[0] * 1).sum()
    del parts, roots
    for _ in range(3):
        gc.collect()
        assert seen() is not None
    root.backward(retain_graph=True)
    gc.collect()
    assert seen() is not None
    del root
    gc.collect()
    assert seen() is None


@pytest.mark.flat_memory
@shapes
def test_ten_thousand_leave_no_memory_behind(make):
    def rounds(count):
        for i in range(count):
            make(None)
            if i % 500 == 499:
                gc.collect()

    gc.disable()  # what is collected, and when, does not depend on what else the tests do
    try:
        rounds(2000)
        before = rss()
        rounds(10000)
        assert rss() - before < 2_000_000
    finally:
        gc.enable()


def test_what_c_keeps_is_not_collected():
    """A replayed graph is an owner that Python does not see through."""
    seen = weakref.ref(witness := Witness())

    def make(witness):
        w = leaf() * 2
        w.register_hook(nothing(w, witness))
        w = w.detach()
        w.kept = w, witness
        return g.compile(lambda x: x * w, replay=True)

    f = make(witness)
    del witness
    f(g.ones(3))
    gc.collect()
    assert seen() is not None and f(g.ones(3)).tolist() == [2, 2, 2]
    del f
    gc.collect()
    assert seen() is None


def test_what_a_result_leads_to_is_not_collected():
    calls = []

    def make():
        y = leaf() * 2
        z = y * 3
        y.register_hook(lambda grad: calls.append((y.shape, z.shape)))
        return z.sum()

    root = make()
    gc.collect()
    root.backward()
    assert calls == [((3,), (3,))]


def test_a_collection_inside_a_hook():
    x, calls = leaf(), []
    y = x * 2

    def hook(grad):
        gc.collect()
        calls.append(y.shape)

    y.register_hook(hook)
    z = (y * y).sum()
    z.backward()
    assert calls == [(3,)] and x.grad.tolist() == [8, 8, 8]
    seen = weakref.ref(hook)
    del hook, y, z
    gc.collect()
    assert seen() is None


def test_finalizers_may_use_what_dies_with_them():
    said = []

    class Owner:
        def __init__(self):
            self.y = leaf() * 2
            self.y.register_hook(self.hook)

        def hook(self, grad):
            return None

        def __del__(self):
            said.append((self.y * 3).tolist())

    Owner()
    gc.collect()
    assert said == [[6, 6, 6]]


def test_finalizers_may_save_what_dies_with_them():
    saved = []

    class Owner:
        def __init__(self):
            self.y = leaf() * 2
            self.y.register_hook(self.hook)
            self.calls = 0

        def hook(self, grad):
            self.calls += 1

        def __del__(self):
            saved.append(self)

    Owner()
    gc.collect()
    owner = saved.pop()
    owner.y.sum().backward()
    assert owner.calls == 1


def test_frozen_objects_stay():
    y = leaf() * 2
    calls = []
    y.register_hook(lambda grad: calls.append(y.shape))
    gc.freeze()
    try:
        z = y.sum()
        gc.collect()
        z.backward()
        assert calls == [(3,)]
    finally:
        gc.unfreeze()


def test_at_every_allocation():
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(20):
            for make in SHAPES:
                parts = make(None)
                root = [t for t in parts if isinstance(t, g.Tensor)][-1]
                if make is not retained_gradient_points_back:
                    (root * 1).sum().backward()
    finally:
        gc.set_threshold(700, 10, 10)
