"""Who keeps whom alive: nothing leaks, nothing dies too early, and Python objects die where Python may run."""
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

import grapnel as g
from grapnel.autograd import graph
from hook_tools import rss


class Witness:
    """Something whose end can be seen."""

    def __call__(self, *args):
        return None


def leaf():
    return g.ones(3, requires_grad=True)


# --- hooks die with what they are on ---


@pytest.mark.parametrize("register", [
    lambda x, f: x.register_hook(f),
    lambda x, f: x.register_post_accumulate_grad_hook(f),
    lambda x, f: graph.get_gradient_edge(x).node.register_prehook(f),
    lambda x, f: graph.get_gradient_edge(x).node.register_hook(f),
    lambda x, f: graph.register_multi_grad_hook([x], f),
], ids=["tensor", "post_accumulate", "node_pre", "node_post", "multi"])
@pytest.mark.parametrize("how", ["tensor", "handle"])
def test_hooks_die_with_the_leaf_or_when_removed(register, how):
    x, witness = leaf(), Witness()
    seen = weakref.ref(witness)
    handle = register(x, witness)
    del witness
    gc.collect()
    assert seen() is not None
    if how == "tensor":
        del x
    else:
        handle.remove()
    gc.collect()
    assert seen() is None


def test_hooks_of_intermediates_die_with_the_graph():
    x, witness = leaf(), Witness()
    seen = weakref.ref(witness)
    y = x * 2
    y.register_hook(witness)
    y.grad_fn.register_prehook(witness)
    z = y.sum()
    del witness, y
    assert seen() is not None
    z.backward()
    del z
    gc.collect()
    assert seen() is None


def test_packed_values_die_with_the_graph_or_the_pass():
    class Packed:
        def __init__(self, tensor):
            self.tensor = tensor

    seen = []

    def pack(t):
        packed = Packed(t.detach())
        seen.append(weakref.ref(packed))
        return packed

    for backward in (True, False):
        seen.clear()
        x = leaf()
        with graph.saved_tensors_hooks(pack, lambda packed: packed.tensor):
            y = (x * x).sum()
        assert all(r() is not None for r in seen) and seen
        if backward:
            y.backward()
            assert all(r() is None for r in seen)
        del x, y
        assert all(r() is None for r in seen)


def test_a_hook_that_raises_is_not_kept():
    x, witness = leaf(), Witness()
    seen = weakref.ref(witness)

    def hook(grad, witness=witness):
        raise KeyError(witness)

    handle = x.register_hook(hook)
    del witness
    try:
        (x * 2).sum().backward()
    except KeyError:
        pass
    handle.remove()
    del hook
    gc.collect()
    assert seen() is None


# --- cycles ---


def hook_on_leaf_that_captures_it():
    x = leaf()
    x.register_hook(lambda grad: (x, None)[1])
    return x


def two_leaves_with_hooks_on_each_other():
    x, y = leaf(), leaf()
    x.register_hook(lambda grad: (y, None)[1])
    y.register_post_accumulate_grad_hook(lambda p: (x, None)[1])
    return x


def attribute_that_points_back():
    x = leaf()
    x.me = [x]
    return x


def handle_in_the_hook():
    x, box = leaf(), []
    box.append(x.register_hook(lambda grad: (box, None)[1]))
    box.append(x)
    return x


def subclass_with_a_hook():
    class Weight(g.Tensor):
        pass

    x = Weight([1.0], requires_grad=True)
    x.register_hook(lambda grad: (x, None)[1])
    x.note = x
    return x


def method_of_an_owner():
    class Owner:
        def __init__(self):
            self.x = leaf()
            self.x.register_hook(self.hook)

        def hook(self, grad):
            return None

    return Owner().x


SHAPES = [hook_on_leaf_that_captures_it, two_leaves_with_hooks_on_each_other, attribute_that_points_back, handle_in_the_hook, subclass_with_a_hook, method_of_an_owner]


class Double(g.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def of_result(register, result=lambda x: x * 2):
    """A witness in a ring that register(y, witness) closes, y being computed."""
    witness, y = Witness(), result(leaf())
    register(y, witness)
    return weakref.ref(witness), y


def on_a_result_that_is_captured(y, witness):
    y.register_hook(lambda grad: (y, witness, None)[-1])


def on_a_result_whose_node_is_captured(y, witness):
    node = y.grad_fn
    y.register_hook(lambda grad: (node, witness, None)[-1])


def on_a_node_that_is_captured(y, witness):
    node = y.grad_fn
    node.register_hook(lambda *grads: (node, witness, None)[-1])


def before_a_node_that_is_captured(y, witness):
    node = y.grad_fn
    node.register_prehook(lambda *grads: (node, witness, None)[-1])


def on_a_node_whose_result_is_captured(y, witness):
    y.grad_fn.register_hook(lambda *grads: (y, witness, None)[-1])


def opaque_on_a_node_that_is_captured(y, witness):
    node = y.grad_fn
    node.register_hook(g.opaque(lambda *grads: (node, witness, None)[-1]))


def method_of_a_module_that_keeps_the_result(y, witness):
    class Keeps(g.nn.Module):
        def hook(self, grad):
            return None

    module = Keeps()
    module.seen, module.y = witness, y
    y.register_hook(module.hook)


RINGS = [on_a_result_that_is_captured, on_a_result_whose_node_is_captured, on_a_node_that_is_captured, before_a_node_that_is_captured,
         on_a_node_whose_result_is_captured, opaque_on_a_node_that_is_captured, method_of_a_module_that_keeps_the_result]


@pytest.mark.parametrize("result", [lambda x: x * 2, Double.apply], ids=["op", "function"])
@pytest.mark.parametrize("ran", [False, True], ids=["no_pass", "pass"])
@pytest.mark.parametrize("register", RINGS, ids=lambda f: f.__name__)
def test_rings_through_nodes_are_collected(register, ran, result):
    seen, y = of_result(register, result)
    if ran:
        y.sum().backward()
    gc.collect()
    assert seen() is not None, "the result is still in use"
    del y
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("register", RINGS, ids=lambda f: f.__name__)
def test_hooks_in_rings_stay_while_a_graph_leads_to_them(register):
    seen, y = of_result(register)
    total = y.sum()
    del y
    gc.collect()
    assert seen() is not None
    total.backward()
    del total
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("make", SHAPES, ids=lambda f: f.__name__)
def test_cycles_are_collected(make):
    gc.collect()
    seen = weakref.ref(make())
    gc.collect()
    assert seen() is None


@pytest.mark.flat_memory
@pytest.mark.parametrize("make", SHAPES, ids=lambda f: f.__name__)
def test_cycles_leave_no_memory_behind(make):
    for _ in range(500):
        make()
    gc.collect()
    before = rss()
    for _ in range(10000):
        make()
    gc.collect()
    assert rss() - before < 2_000_000


@pytest.mark.parametrize("make", SHAPES, ids=lambda f: f.__name__)
def test_what_is_used_is_not_collected(make):
    x = make()
    before = len(graph.hooks_of(x))
    gc.collect()
    assert len(graph.hooks_of(x)) == before
    (x * 2).sum().backward()
    assert x.grad is not None


def test_a_graph_keeps_the_hooks_of_its_leaves():
    """The leaf's object has no other owner in Python, but the graph uses the leaf."""
    calls = []

    def make():
        x = leaf()
        x.register_hook(lambda grad: calls.append(x.shape))
        return (x * 2).sum()

    y = make()
    gc.collect()
    y.backward()
    assert calls == [(3,)]


def test_collection_at_every_step():
    gc.set_threshold(1)
    try:
        for _ in range(50):
            x = leaf()
            y = x * x
            handles = [x.register_hook(lambda grad: grad * y.detach()), y.register_hook(lambda grad: grad + x.detach())]
            with graph.saved_tensors_hooks(lambda t: [t], lambda packed: packed[0]):
                z = (y * y).sum()
            z.backward()
            handles[0].remove()
    finally:
        gc.set_threshold(700, 10, 10)


# --- threads, and the end ---


def test_hooks_that_die_on_another_thread():
    """A tensor let go by a thread that Python does not hold at that moment: the callable dies later, with the interpreter's lock."""
    seen = []
    died_on = []

    class Hook(Witness):
        def __del__(self):
            died_on.append(threading.current_thread().name)
            g.ones(2) + 1  # the binding may be entered from here

    def work():
        x = leaf()
        hook = Hook()
        seen.append(weakref.ref(hook))
        y = (x * 2).sum()
        x.register_hook(hook)
        del x, hook
        y.backward()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert all(r() is None for r in seen) and len(died_on) == 8


def test_passes_on_several_threads_with_hooks():
    shared = leaf()
    errors = []

    def work():
        try:
            for _ in range(100):
                x = leaf()
                y = x * shared.detach()
                y.register_hook(lambda grad: grad * 2)
                x.register_post_accumulate_grad_hook(lambda p: None)
                y.sum().backward()
                assert x.grad.tolist() == [2, 2, 2]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == []


def test_passes_on_several_threads_into_one_leaf():
    x = leaf()
    x.register_hook(lambda grad: grad * 1)
    x.register_post_accumulate_grad_hook(lambda p: None)
    threads = [threading.Thread(target=lambda: [(x * 2).sum().backward() for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert x.grad.tolist() == [800] * 3


def test_long_work_lets_other_threads_run():
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            stop.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    x = g.randn(600, 600)
    before = len(ticks)
    for _ in range(20):
        x @ x
    assert len(ticks) > before
    stop.set()
    thread.join()


def run_in_a_process(code):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("code, output", [
    ("import grapnel as g\nx = g.ones(2, requires_grad=True)\nx.register_hook(lambda grad: exit(3))\n(x * 2).sum().backward()", None),
    ("import grapnel as g\nx = g.ones(2, requires_grad=True)\nx.register_hook(lambda grad: (x, None)[1])\nprint('done')", "done\n"),
    ("import grapnel as g, builtins\nbuiltins.x = g.ones(2, requires_grad=True)\nx.register_hook(lambda grad: (x, None)[1])\nprint('done')", "done\n"),
    ("import grapnel as g, threading\n"
     "class Hook:\n    def __call__(self, grad): pass\n    def __del__(self): print('gone')\n"
     "x = g.ones(2, requires_grad=True)\nx.register_hook(Hook())\nprint('end')", "end\ngone\n"),
])
def test_the_interpreter_ends_well(code, output):
    done = run_in_a_process(code)
    assert done.returncode == (3 if output is None else 0), done.stderr
    if output is not None:
        assert done.stdout == output


def test_after_a_fork():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    done = run_in_a_process("""
        import os
        import grapnel as g
        x = g.ones(3, requires_grad=True)
        x.register_hook(lambda grad: grad * 2)
        (x * 2).sum().backward()
        pid = os.fork()
        x.grad = None
        (x * 3).sum().backward()
        assert x.grad.tolist() == [6, 6, 6]
        if pid == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    """)
    assert done.returncode == 0, done.stderr
