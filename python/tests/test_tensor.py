"""Tensors: making them, looking at them, arithmetic, indexing, identity, and refusing nonsense."""
import copy
import operator
import pickle

import numpy as np
import pytest

import grapnel as g


# --- making ---


@pytest.mark.parametrize("data, dtype, shape", [
    (1, g.int64, ()), (1.5, g.float32, ()), (True, g.bool, ()), ([], g.float32, (0,)), ([1, 2], g.int64, (2,)),
    ([1, 2.5], g.float32, (2,)), ([True, 2], g.int64, (2,)), ([[1], [2], [3]], g.int64, (3, 1)), ([[], []], g.float32, (2, 0)),
    ((1.0, 2.0), g.float32, (2,)), ([(1, 2), [3, 4]], g.int64, (2, 2)),
])
def test_tensor_takes_numbers_and_nested_lists(data, dtype, shape):
    t = g.tensor(data)
    assert t.dtype is dtype and t.shape == shape
    assert np.array_equal(np.array(t.tolist()), np.array(data))


@pytest.mark.parametrize("data, error", [
    ([[1], [2, 3]], ValueError), ([1, [2]], ValueError), ([[1], 2], ValueError), ("text", TypeError), ([None], TypeError), (object(), TypeError),
    ([1j], TypeError), ({1: 2}, TypeError), ([[[[[[[[[[[[[1]]]]]]]]]]]]], ValueError),
])
def test_tensor_refuses_other_things(data, error):
    with pytest.raises(error):
        g.tensor(data)


def test_a_list_that_changes_while_it_is_read():
    class Evil:
        def __index__(self):
            values.clear()
            return 1

    values = [Evil(), 1, 2, 3]
    with pytest.raises(ValueError):
        g.tensor(values)


def test_tensor_of_tensors():
    assert g.tensor([g.tensor(1.0), 2]).tolist() == [1, 2]
    assert g.tensor([g.tensor([1, 2]), g.tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]


def test_factories():
    assert g.zeros(2, 3).shape == (2, 3) and g.zeros((2, 3)).shape == (2, 3) and g.zeros([2]).tolist() == [0, 0]
    assert g.ones(2, dtype=g.int64).tolist() == [1, 1]
    assert g.full((2,), 7).tolist() == [7, 7] and g.full((2,), 7).dtype is g.int64
    assert g.arange(3).tolist() == [0, 1, 2] and g.arange(1, 7, 2).tolist() == [1, 3, 5]
    assert g.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and g.eye(2).tolist() == [[1, 0], [0, 1]]
    assert g.empty(4, 0).numel() == 0
    x = g.ones(2, requires_grad=True)
    assert x.requires_grad and x.is_leaf and not g.zeros_like(x).requires_grad
    assert g.full_like(x, 3).tolist() == [3, 3] and g.ones_like(x, dtype=g.float64).dtype is g.float64
    assert g.Tensor([1, 2]).dtype is g.float32 and g.Tensor().numel() == 0


def test_random_numbers_repeat():
    g.manual_seed(3)
    a = g.randn(4)
    g.manual_seed(3)
    assert g.randn(4).equal(a) and not g.randn(4).equal(a)
    one, two = g.Generator().manual_seed(5), g.Generator().manual_seed(5)
    assert g.rand((3,), generator=one).equal(g.rand((3,), generator=two))
    assert sorted(g.randperm(5).tolist()) == [0, 1, 2, 3, 4]
    assert set(g.randint(2, (20,)).tolist()) <= {0, 1}


@pytest.mark.parametrize("dtype", list(g.dtype))
def test_every_dtype(dtype):
    t = g.tensor([0, 1], dtype=dtype)
    assert t.dtype is dtype and t.tolist() == [0, 1] and t.itemsize == dtype.itemsize
    assert t.to(g.float64).to(dtype).equal(t)
    assert repr(dtype) == f"grapnel.{dtype.name}" and pickle.loads(pickle.dumps(dtype)) is dtype


# --- looking ---


def test_properties():
    x = g.ones(2, 3, requires_grad=True)
    assert x.shape == x.size() == (2, 3) and isinstance(x.shape, tuple) and x.shape.numel() == 6
    assert x.ndim == x.dim() == 2 and x.size(-1) == 3 and x.stride() == (3, 1) and x.numel() == 6 and len(x) == 2
    assert x.nbytes == 24 and str(x.device) == "cpu" and x.device == g.device("cpu")
    assert x.T.shape == (3, 2) and x.mT.shape == (3, 2) and x.grad is None and x.grad_fn is None
    x.name = "weight"
    assert x.name == "weight"
    assert repr(x.shape) == "grapnel.Size([2, 3])"


def test_numbers():
    assert float(g.tensor(1.5)) == 1.5 and int(g.tensor(2)) == 2 and bool(g.tensor(1)) and not g.tensor([0.0])
    assert g.tensor(2.5).item() == 2.5 and type(g.tensor(2).item()) is int and g.tensor(True).item() is True
    assert [10, 20, 30][g.tensor(1)] == 20
    for wrong in (lambda: bool(g.ones(2)), lambda: g.ones(2).item()):
        with pytest.raises(g.Error):
            wrong()
    with pytest.raises(TypeError):
        [1][g.tensor(0.5)]


@pytest.mark.parametrize("t, text", [
    (g.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (g.tensor([1.5, 2.0]), "tensor([1.5000, 2.0000])"),
    (g.tensor([1, 20]), "tensor([ 1, 20])"),
    (g.tensor(3.0), "tensor(3.)"),
    (g.tensor([[1.0, 2.0], [3.0, 4.0]]), "tensor([[1., 2.],\n        [3., 4.]])"),
    (g.tensor([1.0], dtype=g.float64), "tensor([1.], dtype=grapnel.float64)"),
    (g.tensor([True, False]), "tensor([ True, False])"),
    (g.tensor([]), "tensor([])"),
    (g.empty(2, 0), "tensor([], size=(2, 0))"),
    (g.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
    (g.tensor([float("nan"), float("inf")]), "tensor([nan, inf])"),
    (g.tensor([1e-9, 1.0]), "tensor([1.0000e-09, 1.0000e+00])"),
])
def test_repr(t, text):
    assert repr(t) == str(t) == text


def test_repr_of_long_and_recorded_tensors():
    assert "..." in repr(g.zeros(2000)) and len(repr(g.zeros(100, 100, 100))) < 5000
    x = g.ones(1, requires_grad=True)
    assert repr(x * 2) == "tensor([2.], grad_fn=<mul>)"
    assert f"{g.tensor(1.25):.1f}" == "1.2"


# --- one object per tensor ---


def test_identity():
    x = g.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is x.grad
    y = g.ones(2)
    assert y.add_(1) is y and y.zero_() is y and operator.iadd(y, 1) is y and y.requires_grad_() is y
    z = g.ones(2)
    z.grad = y = g.zeros(2)
    assert z.grad is y
    node = (x * 2).grad_fn
    assert node.next_functions[0][0] is node.next_functions[0][0]
    assert {x: 1}[x] == 1 and x in [x] and hash(x) == hash(x)


def test_attributes_and_subclasses():
    import weakref

    class Weight(g.Tensor):
        pass

    w = Weight([1.0, 2.0], requires_grad=True)
    w.note = "mine"
    (w * 2).sum().backward()
    assert type(w) is Weight and w.note == "mine" and w.grad.tolist() == [2, 2]
    assert type(w * 2) is g.Tensor
    seen = weakref.ref(w)
    assert seen() is w
    del w
    assert seen() is None


def test_copies():
    x = g.tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    x.note = 1
    y = copy.deepcopy(x)
    assert y is not x and y.equal(x) and y.requires_grad and y.grad.tolist() == [3, 3] and y.note == 1
    assert y.data_ptr() != x.data_ptr()
    with pytest.raises(RuntimeError):
        copy.deepcopy(x * 2)


# --- arithmetic ---


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
                                operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge], ids=lambda f: f.__name__)
def test_operators_agree_with_numpy(op):
    a, b = np.array([1.0, 2.0, 3.5]), np.array([2.0, 2.0, 0.5])
    x, y = g.tensor(a), g.tensor(b)
    for got, want in ((op(x, y), op(a, b)), (op(x, 2), op(a, 2)), (op(x, 2.5), op(a, 2.5)), (op(2, x), op(2, a)), (op(2.5, x), op(2.5, a))):
        assert np.allclose(got.numpy(), want)
    for number in (np.float64(2), np.float32(2), np.int64(2)):
        assert np.allclose(op(x, number).numpy(), op(a, 2))


@pytest.mark.parametrize("op", [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imod, operator.ifloordiv], ids=lambda f: f.__name__)
def test_in_place_operators(op):
    a = np.array([1.0, 2.0, 3.5])
    for other in (2.0, np.array([2.0, 2.0, 0.5])):
        x = g.tensor(a)
        y = op(x, other if isinstance(other, float) else g.tensor(other))
        assert y is x and np.allclose(x.numpy(), op(a.copy(), other)) and x._version == 1


def test_more_operators():
    x = g.tensor([1.0, -2.0])
    assert (-x).tolist() == [-1, 2] and (+x) is x and abs(x).tolist() == [1, 2]
    m = g.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (m @ m).tolist() == [[7, 10], [15, 22]]
    b, i = g.tensor([True, False]), g.tensor([5, 3])
    assert (~b).tolist() == [False, True] and (b & True).tolist() == [True, False] and (b | ~b).tolist() == [True, True] and (b ^ b).tolist() == [False, False]
    assert (~i).tolist() == [-6, -4] and (i & 1).tolist() == [1, 1] and (2 | i).tolist() == [7, 3]
    assert [v.item() for v in i] == [5, 3] and 5 in i and 4 not in i
    assert list(reversed(i))[0].item() == 3


@pytest.mark.parametrize("wrong", [
    lambda x: x + "a", lambda x: "a" + x, lambda x: x + None, lambda x: x * [1], lambda x: x @ 2, lambda x: x & 1.5, lambda x: x + object(),
    lambda x: x + np.ones(2), lambda x: np.ones(2) + x, lambda x: pow(x, 2, 3), lambda x: x.sum("a"), lambda x: x.view("a"),
    lambda x: x.nothing(), lambda x: g.add(x), lambda x: g.add(x, 1, 2, 3), lambda x: g.ones("2"), lambda x: g.ones(2, dtype="f"), lambda x: x.to("cuda9"),
    lambda x: g.cat(x), lambda x: g.cat([x, 1]), lambda x: x.register_hook(3), lambda x: x.backward("a"), lambda x: setattr(x, "grad", 3),
    lambda x: x["a"], lambda x: x[1.5], lambda x: delattr(x, "data"), lambda x: x.__delitem__(0), lambda x: iter(g.tensor(1)), lambda x: len(g.tensor(1)),
    lambda x: g.Node(), lambda x: memoryview(x.bfloat16()), lambda x: memoryview(x.requires_grad_()),
], ids=str)
def test_bad_input_is_a_python_exception(wrong):
    with pytest.raises((TypeError, AttributeError, BufferError, g.Error)):
        wrong(g.ones(2))


def test_messages_name_what_was_wrong():
    with pytest.raises(g.Error, match="inner sizes differ"):
        g.ones(2, 3) @ g.ones(2, 3)
    assert issubclass(g.Error, RuntimeError)


# --- indexing ---


@pytest.mark.parametrize("key", [0, -1, slice(1, None), slice(None, None, 2), ..., None, (0, 1), (slice(None), 1), (..., 2), (None, 0), ([0, 1],),
                                 ([0, 1], [2, 1]), (slice(0, 1), slice(1, 3)), (slice(-100, 100),), True], ids=str)
def test_indexing_agrees_with_numpy(key):
    a = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(g.tensor(a)[key].numpy(), a[key])
    b, x = a.copy(), g.tensor(a)
    b[key] = 9
    x[key] = 9
    assert np.array_equal(x.numpy(), b)


def test_indexing_with_tensors():
    a = np.arange(6.0).reshape(2, 3)
    x = g.tensor(a)
    assert x[x > 2].tolist() == [3, 4, 5] and x[g.tensor([1, 0])].tolist() == a[[1, 0]].tolist() and x[g.tensor(1)].tolist() == [3, 4, 5]
    assert x[np.array([1])].tolist() == [[3, 4, 5]]
    x[x > 2] = 0
    x[0] = g.tensor([7.0, 8.0, 9.0])
    x[1, :2] = [1, 2]
    assert x.tolist() == [[7, 8, 9], [1, 2, 0]]
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(g.Error):
        x[0, 0, 0]


# --- with other libraries ---


@pytest.mark.parametrize("dtype", [t for t in g.dtype if t is not g.bfloat16])
def test_numpy_both_ways_shares_memory(dtype):
    x = g.ones(2, 3, dtype=dtype)
    a = x.numpy()
    assert a.dtype.name == dtype.name and a.shape == (2, 3)
    a[0, 1] = 0
    assert x[0, 1].item() == 0
    y = g.from_numpy(a)
    assert y.dtype is dtype and y.data_ptr() == x.data_ptr() == a.ctypes.data
    assert g.tensor(a).data_ptr() != x.data_ptr() and g.as_tensor(a).data_ptr() == x.data_ptr()
    assert np.array_equal(np.asarray(x.T), a.T) and np.asarray(x).ctypes.data == x.data_ptr()


def test_shared_memory_lives_as_long_as_anybody_needs_it():
    a = g.arange(1000).numpy()
    assert a.sum() == 499500
    t = g.from_numpy(np.arange(1000))
    assert t.sum().item() == 499500
    view = t[10:20]
    del t
    assert view.tolist() == list(range(10, 20))


def test_numpy_refusals():
    x = g.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()
    assert x.detach().numpy().tolist() == [1, 1] and x.numpy(force=True).tolist() == [1, 1]
    with pytest.raises(RuntimeError):
        np.asarray(x)
    with pytest.raises(TypeError, match="bfloat16"):
        g.ones(2, dtype=g.bfloat16).numpy()
    for array in (np.arange(4)[::-1], np.zeros(2, dtype="c8"), np.zeros(2, dtype="u2"), np.zeros(2, dtype="S3")):
        with pytest.raises((ValueError, TypeError)):
            g.from_numpy(array)
    frozen = np.arange(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        g.from_numpy(frozen)
    assert g.tensor(frozen).tolist() == [0, 1, 2] and g.as_tensor(frozen).tolist() == [0, 1, 2]


def test_buffers_of_python():
    import array

    assert g.tensor(array.array("d", [1, 2])).dtype is g.float64
    assert g.from_numpy(bytearray(b"ab")).tolist() == [97, 98]
    assert bytes(memoryview(g.tensor([1, 2], dtype=g.uint8))) == b"\x01\x02"


# --- modes ---


def test_grad_modes():
    x = g.ones(2, requires_grad=True)
    with g.no_grad():
        assert not (x * 2).requires_grad
        with g.enable_grad():
            assert (x * 2).requires_grad
    assert g.is_grad_enabled()

    @g.no_grad()
    def f():
        return (x * 2).requires_grad

    @g.no_grad
    def h():
        return (x * 2).requires_grad

    @g.no_grad()
    def each():
        yield g.is_grad_enabled()
        yield g.is_grad_enabled()

    assert not f() and not h()
    for off in each():
        assert not off and g.is_grad_enabled()
    with g.set_grad_enabled(False):
        assert not g.is_grad_enabled()
    g.set_grad_enabled(False)
    g.set_grad_enabled(True)
    with g.inference_mode():
        t = x * 2
    assert t.is_inference() and not t.requires_grad and g.is_grad_enabled()
    with pytest.raises(KeyError):
        with g.no_grad():
            raise KeyError
    assert g.is_grad_enabled()


def test_checkpoint():
    from grapnel.utils.checkpoint import checkpoint

    calls = []

    def part(x, k, *, shift):
        calls.append(1)
        return (x * k + shift).sin()

    x = g.tensor([1.0, 2.0], requires_grad=True)
    y = checkpoint(part, x, 3, shift=0.5)
    y.sum().backward()
    want = g.tensor([1.0, 2.0], requires_grad=True)
    part(want, 3, shift=0.5).sum().backward()
    assert x.grad.equal(want.grad) and len(calls) == 3
