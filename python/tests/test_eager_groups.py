"""Rows of docs/specification/eager.md by their ids. Hooks over several things: several gradients, saved tensors, anomaly mode, passes inside passes; the order of everything."""
import math

import pytest

import grapnel as g
from grapnel.autograd import backward, graph
from hook_tools import leaf, list_of, raising

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
