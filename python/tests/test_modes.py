"""Scopes as decorators. Of generators, too: the mode holds while the generator runs, and what its user does reaches it."""
import pytest

import grapnel as g


class Recoverable(Exception):
    pass


@g.no_grad()
def counting(seen):
    total = 0
    try:
        while total < 10:
            try:
                sent = yield total
                total += 1 if sent is None else sent
            except Recoverable:
                total += 100
            seen.append(g.is_grad_enabled())
        return total
    finally:
        seen.append(("end", g.is_grad_enabled()))


def test_the_mode_holds_inside_only():
    seen = []
    for _ in counting(seen):
        assert g.is_grad_enabled()
    assert seen == [False] * 10 + [("end", False)]


def test_values_and_exceptions_reach_the_generator():
    seen = []
    running = counting(seen)
    assert next(running) == 0 and running.send(4) == 4
    with pytest.raises(StopIteration) as ended:
        running.throw(Recoverable())
    assert ended.value.value == 104 and seen == [False, False, ("end", False)] and g.is_grad_enabled()


def test_other_exceptions_come_back():
    seen = []
    running = counting(seen)
    next(running)
    with pytest.raises(KeyError):
        running.throw(KeyError("x"))
    assert seen == [("end", False)] and g.is_grad_enabled()


def test_closing_closes_the_generator():
    seen = []
    running = counting(seen)
    next(running)
    running.close()
    assert seen == [("end", False)] and g.is_grad_enabled()


def test_scopes_of_saved_tensors_are_decorators():
    packed, x = [], g.ones(2, requires_grad=True)

    @g.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t), t)[1], lambda t: t)
    def square():
        return (x * x).sum()

    for count in (2, 4):
        square().backward()
        assert len(packed) == count
    (x * x).sum()
    assert len(packed) == 4
    refused = g.autograd.graph.disable_saved_tensors_hooks("not here")(square)
    with pytest.raises(g.Error, match="not here"):
        refused()
    square()
