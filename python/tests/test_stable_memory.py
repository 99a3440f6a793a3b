"""Memory of other libraries in compiled functions: read as it was when a recorded op saw it, or where it lies if its owner promises not to write."""
import numpy as np
import pytest

import grapnel as g

SHARE = {"numpy": g.from_numpy, "dlpack": g.from_dlpack}


@pytest.mark.parametrize("share", SHARE)
def test_without_a_promise_values_are_those_of_the_call(share):
    memory = np.array([1.0, 2.0, 3.0], dtype=np.float32)

    @g.compile
    def f(x):
        y = x * 2
        memory[0] = 100
        return y

    assert f(SHARE[share](memory)).tolist() == [2, 4, 6]


@pytest.mark.parametrize("share", SHARE)
def test_with_a_promise_the_memory_is_read_where_it_lies(share):
    memory = np.array([1.0, 2.0, 3.0], dtype=np.float32)

    @g.compile
    def f(x):
        y = x * 2
        memory[0] = 100  # breaks the promise, to see which memory is read
        return y

    assert f(SHARE[share](memory, stable=True)).tolist() == [200, 4, 6]


@pytest.mark.parametrize("share", SHARE)
def test_between_calls_the_memory_may_change(share):
    memory = np.array([1.0, 2.0], dtype=np.float32)
    x = SHARE[share](memory, stable=True)
    f = g.compile(lambda t: t * 2 + 1)
    assert f(x).tolist() == [3, 5]
    memory[:] = 10
    assert f(x).tolist() == [21, 21]


@pytest.mark.parametrize("share", SHARE)
def test_writes_go_to_the_memory(share):
    memory = np.array([1.0, 2.0], dtype=np.float32)
    x = SHARE[share](memory, stable=True)

    @g.compile
    def f():
        x.add_(1)

    f()
    assert memory.tolist() == [2, 3]


def test_views_share_the_promise():
    memory = np.arange(6, dtype=np.float32)
    x = g.from_numpy(memory, stable=True).view(2, 3)

    @g.compile
    def f(t):
        y = t[1] * 2
        memory[3] = 50
        return y

    assert f(x).tolist() == [100, 8, 10]


def test_the_promise_is_asked_for_by_name():
    with pytest.raises(TypeError):
        g.from_numpy(np.ones(2, dtype=np.float32), True)
