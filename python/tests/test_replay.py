"""compile(f, replay=True): a pure function whose body runs once per kind of arguments."""
import collections
import dataclasses

import pytest

import grapnel as g


def pure(f, calls=None, **options):
    def counted(*args, **kwargs):
        if calls is not None:
            calls.append(1)
        return f(*args, **kwargs)

    return g.compile(counted, replay=True, **options)


def test_the_body_runs_once_per_kind_of_arguments():
    calls = []
    f = pure(lambda x: x * 2 + 1, calls)
    for i in range(4):
        assert f(g.full((2,), float(i))).tolist() == [2 * i + 1] * 2
    assert len(calls) == 1
    f(g.ones(3))
    assert len(calls) == 2
    f.reset()
    f(g.ones(3))
    assert len(calls) == 3


@dataclasses.dataclass(frozen=True)
class Batch:
    x: g.Tensor
    scale: float = 1.0


Pair = collections.namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize("make, plain", [
    (lambda t: ([t, 2], {"k": (t,)}), lambda a: (a[0][0] * a[0][1], a[1]["k"][0])),
    (lambda t: (Batch(t, 3.0), None), lambda a: Batch(a[0].x * a[0].scale)),
    (lambda t: (Pair(t, "twice"), True), lambda a: Pair(a[0].first * (2 if a[0].second == "twice" else 3), a[1])),
    (lambda t: ({"a": t, "b": [t, None]}, 1), lambda a: {"sum": a[0]["a"] + a[0]["b"][0], "none": a[0]["b"][1], "n": a[1]}),
], ids=["list and dict", "dataclass", "named tuple", "dict"])
def test_nested_arguments_and_results(make, plain):
    calls = []
    f = pure(lambda a: plain(a), calls)

    def same(a, b):
        assert type(a) is type(b)
        if isinstance(a, g.Tensor):
            assert a.equal(b)
        elif dataclasses.is_dataclass(a):
            same(vars(a), vars(b))
        elif isinstance(a, dict):
            assert list(a) == list(b)
            for key in a:
                same(a[key], b[key])
        elif isinstance(a, (tuple, list)):
            assert len(a) == len(b)
            for p, q in zip(a, b):
                same(p, q)
        else:
            assert a == b

    for i in range(3):
        argument = make(g.full((2,), float(i)))
        same(f(argument), plain(argument))
    assert len(calls) == 1


@pytest.mark.parametrize("values", [(1, 2), (1, 1.0), (True, 1), ("a", "b"), (None, 0), ((1,), [1]), ({"a": 1}, {"b": 1}), (g.float32, g.float64)])
def test_plain_values_are_told_apart(values):
    f = pure(lambda x, v: (x, v))
    for _ in range(2):
        for value in values:
            got = f(g.ones(1), value)[1]
            assert got == value and type(got) is type(value)


def test_keywords_are_arguments():
    f = pure(lambda x, *, k=1.0, j=0.0: x * k + j)
    assert [f(g.ones(1), k=2.0).item(), f(g.ones(1), j=2.0).item(), f(g.ones(1), k=3.0).item()] == [2, 3, 3]
    assert [f(g.ones(1), k=2.0).item(), f(g.ones(1), j=2.0).item(), f(g.ones(1), k=3.0).item()] == [2, 3, 3]


def test_arguments_that_are_the_same_tensor():
    f = pure(lambda a, b: (a is b, a + b))
    x, y = g.ones(1), g.ones(1)
    assert f(x, x)[0] is True and f(x, y)[0] is False and f(x, x)[0] is True


def test_a_returned_argument_is_that_argument():
    f = pure(lambda a: (a, a * 2))
    for _ in range(2):
        x = g.ones(2)
        assert f(x)[0] is x


def test_a_captured_tensor_is_read_as_it_is():
    w = g.ones(1)
    f = pure(lambda x: x * w)
    assert f(g.ones(1)).item() == 1
    w.fill_(5)
    assert f(g.ones(1)).item() == 5


@pytest.mark.parametrize("body, why", [
    (lambda x: x.sum().item(), "looks at a value"),
    (lambda x: g.randn(2) + x, "draws random numbers"),
    (lambda x: x.add_(1), "writes to a tensor from outside"),
    (lambda x: g.invoke(lambda v: v, x), "not recorded"),
    (lambda x: x.requires_grad_() * 2, "requires grad"),
])
def test_what_no_pure_function_does_is_refused(body, why):
    with pytest.raises(g.Error, match=why):
        pure(body)(g.ones(2))


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="got an object of type 'object'"):
        pure(lambda x: x)(object())
    with pytest.raises(TypeError, match="got an object of type 'set'"):
        pure(lambda x: {1})(g.ones(1))


def test_an_exception_of_the_body_passes():
    with pytest.raises(ZeroDivisionError):
        pure(lambda x: x / (1 // 0))(g.ones(1))


def test_the_audit_notices_a_number_from_elsewhere():
    factor = 2.0
    f = pure(lambda x: x * factor)
    f(g.ones(1))
    g.set_replay_audit(True)
    try:
        assert f(g.ones(1)).item() == 2
        factor = 3.0
        with pytest.raises(g.Error, match="operand 1 is 3.0, was 2.0"):
            f(g.ones(1))
    finally:
        g.set_replay_audit(False)


def test_inside_of_another_compiled_function_the_body_runs():
    calls = []
    inner = pure(lambda x: x * 2, calls)
    outer = g.compile(lambda x: inner(x) + inner(x), fullgraph=True)
    assert outer(g.ones(1)).item() == 4 and len(calls) == 2
