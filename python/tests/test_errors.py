"""Kinds of errors: each is grapnel.Error and the built-in exception of its name."""
import pickle

import pytest

import grapnel as g
from grapnel import errors


@pytest.mark.parametrize("call, kind, builtin", [
    (lambda: g.ones(3).select(0, 5), errors.IndexError, IndexError),
    (lambda: g.ones(3).sum(dim=2), errors.IndexError, IndexError),
    (lambda: g.ones(3).index_select(0, g.tensor([7])), errors.IndexError, IndexError),
    (lambda: g.ones(3).narrow(0, 9, 1), errors.IndexError, IndexError),
    (lambda: g.ones(2, 2) @ g.ones(2, 2, dtype=g.int64), errors.TypeError, TypeError),
    (lambda: g.ones(3, dtype=g.int64).softmax(0), errors.TypeError, TypeError),
    (lambda: g.ones(3, dtype=g.int64).requires_grad_(), errors.TypeError, TypeError),
    (lambda: g.compile(lambda x: (x * 2).item(), fullgraph=True)(g.ones(1)), errors.GraphBreak, RuntimeError),
    (lambda: g.trace(lambda x: (x * 2).item(), g.ones(1)), errors.GraphBreak, RuntimeError),
    (lambda: g.compile(lambda x: (x * 2).item(), replay=True)(g.ones(1)), errors.GraphBreak, RuntimeError),
    (lambda: g.ones(2) + g.ones(3), g.Error, RuntimeError),
])
def test_kinds(call, kind, builtin):
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, g.Error) and isinstance(caught.value, builtin) and isinstance(caught.value, RuntimeError)
    assert type(caught.value) is kind


def test_errors_of_graphs_keep_their_kind():
    f = g.compile(lambda x, i: x.index_select(0, i))
    with pytest.raises(IndexError, match="out of range"):
        f(g.ones(3), g.tensor([7]))


def test_an_error_in_a_hook_keeps_its_kind():
    x = g.ones(2, requires_grad=True)
    x.register_hook(lambda grad: grad.select(0, 9))
    with pytest.raises(IndexError, match="select"):
        (x * 2).sum().backward()


def test_names_and_pickles():
    assert g.GraphBreak is errors.GraphBreak and g.Error.__module__ == "grapnel" and errors.IndexError.__module__ == "grapnel.errors"
    for kind in (g.Error, g.GraphBreak, g.InternalError, errors.IndexError, errors.TypeError, errors.ValueError):
        assert type(pickle.loads(pickle.dumps(kind("text")))) is kind
