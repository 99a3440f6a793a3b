"""Messages name lines of Python's: of the op, of the reader, of a hook's registration."""
import inspect
import re

import pytest

import grapnel as g


def line_of(marker):
    """The line of this file that ends in a comment."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith("# " + marker))


def test_a_break_names_the_line_that_reads():
    def step(x):
        y = x * 2
        return y.item()  # reads

    with pytest.raises(g.GraphBreak, match=rf"item reads a value at \S*test_lines.py:{line_of('reads')} \(.*step\)"):
        g.compile(step, fullgraph=True)(g.ones(1))
    loose = g.compile(step)
    loose(g.ones(1))
    assert f"test_lines.py:{line_of('reads')}" in loose.stats().break_reasons[0].where


@pytest.mark.parametrize("read", [float, bool, repr, lambda x: x.tolist(), lambda x: x.numpy(), lambda x: x.equal(x)])
def test_every_reader_names_a_line_of_the_users(read):
    def step(x):
        return read(x * 2)

    with pytest.raises(g.GraphBreak, match=r"test_lines.py:\d+ \("):
        g.compile(step, fullgraph=True)(g.ones(1))


def test_graphs_know_their_lines():
    def f(x):
        y = x * 2  # multiplies
        return y.exp()  # takes exp

    first, second = g.trace(f, g.ones(1)).instructions
    assert re.search(rf"test_lines.py:{line_of('multiplies')} \(.*f\)", first.site)
    assert f"test_lines.py:{line_of('takes exp')}" in second.site
    assert f"test_lines.py:{line_of('takes exp')}" in g.trace(f, g.ones(1)).str(sources=True)


def test_an_op_that_fails_when_the_graph_runs_names_its_line():
    def f(x, i):
        return x.index_select(0, i)  # selects

    with pytest.raises(IndexError, match=rf"test_lines.py:{line_of('selects')}"):
        g.compile(f)(g.ones(3), g.tensor([7]))


def test_an_op_that_fails_at_once_names_its_line():
    with pytest.raises(g.Error, match=rf"test_lines.py:{line_of('adds')}"):
        g.ones(2) + g.ones(3)  # adds


def test_an_op_that_fails_while_other_threads_may_run_names_its_line():
    big = g.ones(40000)
    with pytest.raises(g.Error, match=rf"test_lines.py:{line_of('adds many')}"):
        big + g.ones(40001)  # adds many
    with pytest.raises(g.Error, match=rf"test_lines.py:{line_of('takes many apart')}"):
        big.view(3, -1)  # takes many apart
    x = g.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(g.Error, match=rf"test_lines.py:{line_of('goes back twice')}"):
        y.backward()  # goes back twice


def test_a_hook_that_fails_in_a_pass_names_its_own_line():
    x = g.ones(2, requires_grad=True)
    x.register_hook(lambda grad: grad + g.ones(3))  # fails
    with pytest.raises(g.Error, match=rf"test_lines.py:{line_of('fails')} \("):
        (x * 2).sum().backward()


def test_a_hook_names_where_it_was_registered():
    def looker(grad):
        return grad * grad.sum().item()

    x = g.ones(2, requires_grad=True)
    x.register_hook(looker)  # registers

    @g.compile(fullgraph=True)
    def step():
        (x * 2).sum().backward()

    with pytest.raises(g.GraphBreak, match=rf"looker' registered at \S*test_lines.py:{line_of('registers')}"):
        step()
    (info,) = g.autograd.graph.hooks_of(x)
    assert f"test_lines.py:{line_of('registers')}" in info.site


def test_anomaly_mode_names_the_line_of_the_forward_op():
    x = g.zeros(1, requires_grad=True)
    with g.autograd.detect_anomaly():
        y = (x * 0).sqrt() * 0  # makes a NaN
        with pytest.raises(g.Error, match=rf"test_lines.py:{line_of('makes a NaN')}"):
            y.backward()


def test_frames_of_the_package_are_passed_over():
    graph = g.trace(lambda a: g.cond(True, lambda t: t * 2, lambda t: t, (a,)), g.ones(1))
    assert "test_lines.py" in graph.instructions[0].site
