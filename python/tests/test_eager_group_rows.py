"""Rows of docs/specification/eager.md by their ids. Several gradients, saved tensors, anomaly mode, passes inside passes, threads: the rarer rules."""
import threading

import pytest

import grapnel as g
from grapnel.autograd import grad as grad_of
from grapnel.autograd import graph
from hook_tools import Record, leaf, list_of, raising, times


# --- 4.1 several gradients ---


def test_K4_the_value_at_its_place_among_the_hooks():
    x, seen = leaf(1.0), []
    x.register_hook(times(2))
    graph.register_multi_grad_hook([x], lambda grads: seen.append((list_of(grads[0]), x.grad)))
    x.register_hook(times(10))
    (3 * x).backward()
    assert seen == [(6, None)] and x.grad.item() == 60


@pytest.mark.eager_only("threads record nothing into the function that started them")
def test_K5_counted_per_pass():
    a, b = leaf(1.0), leaf(2.0)
    products = [a * b for _ in range(5)]
    calls, lock, failed = [], threading.Lock(), []

    def hook(grads):
        with lock:
            calls.append(1)

    graph.register_multi_grad_hook([a, b], hook)
    products[4].register_hook(raising)

    def work(product):
        try:
            product.backward()
        except ZeroDivisionError:
            failed.append(1)

    threads = [threading.Thread(target=work, args=[p]) for p in products]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(calls) == 4 and failed == [1]


def test_K7_for_inputs_of_grad_and_after_a_failure():
    a, b, calls = leaf(1.0), leaf(2.0), []
    graph.register_multi_grad_hook([a, b], lambda grads: calls.append([list_of(t) for t in grads]))
    handle = b.register_hook(raising)
    with pytest.raises(Exception):
        grad_of(a * b, [a, b])
    handle.remove()
    calls.clear()
    grad_of(a * b, [a, b])
    assert calls == [[2, 1]]


# --- 4.2 saved tensors ---


@pytest.mark.eager_only("other threads record nothing")
def test_S6_other_threads_do_not_inherit_scopes():
    packed, x = [], leaf([2.0])
    with graph.saved_tensors_hooks(lambda t: (packed.append(1), t)[1], lambda t: t):
        thread = threading.Thread(target=lambda: (x * x).sum().backward())
        thread.start()
        thread.join()
    assert packed == [] and x.grad.tolist() == [4]


def test_S6_passes_that_build_a_graph_take_the_scopes():
    x = leaf(2.0)
    with graph.saved_tensors_hooks(lambda t: 2 * t, lambda t: t / 2):
        (first,) = grad_of(x * x * x, [x], create_graph=True)
        (second,) = grad_of(first, [x])
    assert list_of(first) == 12 and list_of(second) == 12


def test_S9_changes_after_saving_are_noticed():
    x = leaf([1.0, 2.0])
    y = x * 1
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        z = y.sin()
    y.mul_(2)
    with pytest.raises(g.Error):
        z.sum().backward()


def test_S11_unpack_runs_after_the_hooks_before_the_node():
    x, log = leaf([1.0, 2.0]), []
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: (log.append("unpack"), t)[1]):
        y = x.sin()
    y.grad_fn.register_prehook(lambda gs: log.append("pre"))
    y.grad_fn.register_hook(lambda made, given: log.append("post"))
    y.sum().backward()
    assert log == ["pre", "unpack", "post"]


# --- 4.3 anomaly mode ---


@pytest.mark.eager_only("anomaly mode describes what fails at once")
def test_Y2_nodes_know_where_they_were_made():
    with g.autograd.detect_anomaly():
        x = leaf(-1.0)
        y = x.sqrt()
        with pytest.raises(g.Error, match=r"test_eager_group_rows\.py:\d+"):
            y.backward()


@pytest.mark.eager_only("anomaly mode describes what fails at once")
def test_Y3_the_hook_that_made_nan_is_named():
    def bad(grad):
        return grad * float("nan")

    with g.autograd.detect_anomaly():
        x = leaf(1.0)
        y = x * 2
        y.register_hook(bad)
        with pytest.raises(g.Error, match="bad"):
            y.backward()


# --- 4.4 passes inside passes ---


def test_Z2_from_the_hook_of_a_leaf():
    x, seen = leaf(2.0), []

    def hook(p):
        inner = leaf(3.0)
        with g.enable_grad():
            square = inner * inner
        square.backward()
        seen.append(list_of(inner.grad))
        p.grad = inner.grad * 2

    x.register_post_accumulate_grad_hook(hook)
    (x * 5).backward()
    assert seen == [6] and x.grad.item() == 12


@pytest.mark.eager_only("Python's own calls nest, however the passes do")
def test_Z3_depth():
    deepest = []

    def nest(depth):
        x = leaf(1.0)
        x.register_hook(lambda grad: nest(depth - 1) if depth else deepest.append(depth))
        with g.enable_grad():
            y = 2 * x
        y.backward()

    nest(100)
    assert deepest == [0]


def test_Z6_a_node_that_is_being_executed():
    x = leaf(1.0)

    class Again(g.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            y.backward(retain_graph=True)
            return grad * 2

    y = Again.apply(x)
    with pytest.raises((g.Error, RecursionError)):
        y.backward(retain_graph=True)


# --- 4.5 threads ---


def test_W1_hooks_run_on_the_thread_that_called():
    x, seen = leaf(1.0), []
    x.register_hook(lambda grad: seen.append((threading.get_ident(), g.is_grad_enabled())))
    (2 * x).backward()
    assert seen == [(threading.get_ident(), False)]


@pytest.mark.eager_only("other threads record nothing into the function that started them")
def test_W3_passes_on_several_threads_share_nodes():
    x, rec = leaf([1.0, 2.0]), Record()
    y = x * 2
    y.register_hook(rec)

    def work():
        for _ in range(50):
            (y * 3).sum().backward(retain_graph=True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        y.register_hook(lambda grad: None).remove()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert x.grad.tolist() == [1200, 1200] and len(rec) == 200


def test_W4_the_node_made_last_goes_first():
    x, log = leaf(1.0), []
    a = x * 2
    b = x * 3
    c = x * 5
    for name, t in (("a", a), ("b", b), ("c", c)):
        t.grad_fn.register_hook(lambda made, given, name=name: log.append(name))
    (a + b + c).backward()
    assert log == ["c", "b", "a"]
