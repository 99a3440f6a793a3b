"""Ctrl-C, and handlers of other signals, in long work: Python's handler runs, and what it raises ends the work."""
import signal
import threading

import pytest

import grapnel as g
from grapnel.autograd import graph


@pytest.fixture
def soon():
    """soon(seconds): a signal, whose handler raises KeyboardInterrupt."""

    def raise_it(*_):
        raise KeyboardInterrupt("said by the handler")

    before = signal.signal(signal.SIGALRM, raise_it)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def long_chain():
    x = g.ones(1000, requires_grad=True)
    y = x
    for _ in range(300):
        y = y * 1.0
    return x, y


def slow(y, seconds):
    """Makes the next pass over y take so long, without a moment in which the interpreter could run a handler by itself."""
    event = threading.Event()

    class Wait(g.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, grad):
            event.wait(seconds)
            return grad

    return Wait.apply(y)


def test_a_backward_pass_ends_with_the_handlers_exception(soon):
    x = g.ones(400000, requires_grad=True)
    y = x
    for _ in range(400):
        y = y.sin()
    fired = []
    x.register_hook(lambda grad: fired.append(1))
    root = y.sum()
    soon(0.05)
    with pytest.raises(KeyboardInterrupt, match="said by the handler"):
        while not fired:
            root.backward(retain_graph=True)
            fired.clear()
    assert x.grad is None or fired == []


def test_work_goes_on_afterwards(soon):
    x, y = long_chain()
    soon(0.02)
    with pytest.raises(KeyboardInterrupt):
        while True:
            y.sum().backward(retain_graph=True)
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [1.0] * 1000 and graph.hooks_of(x) == []


def test_a_handler_that_raises_nothing_changes_nothing():
    calls = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        x, y = long_chain()
        while len(calls) < 3:
            x.grad = None
            y.sum().backward(retain_graph=True)
            assert x.grad.tolist() == [1.0] * 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_in_a_function_written_in_python(soon):
    x, y = long_chain()
    root = slow(y, 0.2).sum()
    soon(0.05)
    with pytest.raises(KeyboardInterrupt):
        root.backward()


def test_in_a_compiled_function(soon):
    @g.compile
    def f(x):
        for _ in range(50):
            x = (x @ x).tanh()
        return x

    x = g.ones(64, 64)
    f(x)
    soon(0.05)
    with pytest.raises(KeyboardInterrupt):
        while True:
            f(x)
    assert f(x).shape == (64, 64)
