"""Tensors and other libraries: NumPy, DLPack, pickles, files."""
import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import grapnel as g
from grapnel import nn

DTYPES = [g.bool, g.uint8, g.int32, g.int64, g.float16, g.float32, g.float64]


# --- NumPy ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numpy_shares_memory_both_ways(dtype):
    x = g.ones(2, 3, dtype=dtype)
    array = x.numpy()
    array[0, 0] = 0
    assert x[0, 0].item() == 0 and array.shape == (2, 3)
    back = g.from_numpy(array)
    assert back.data_ptr() == x.data_ptr() and back.dtype is dtype


def test_arrays_leave_arithmetic_to_tensors():
    x = g.tensor([1.0, 2.0])
    assert isinstance(np.float32(2) * x, g.Tensor) and (np.float64(2) + x).tolist() == [3, 4]
    with pytest.raises(TypeError):
        np.ones(2) * x
    assert np.asarray(x).tolist() == [1, 2] and np.asarray(x, dtype=np.float64).dtype == np.float64


# --- DLPack ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dlpack_to_numpy_and_back_without_a_copy(dtype):
    x = g.ones(4, 3, dtype=dtype).t()
    array = np.from_dlpack(x)
    assert array.ctypes.data == x.data_ptr() and array.shape == (3, 4) and array.strides == tuple(s * x.itemsize for s in x.stride())
    again = g.from_dlpack(x)
    assert again.data_ptr() == x.data_ptr() and again.stride() == x.stride() and again.dtype is dtype
    mine = np.arange(6).astype(array.dtype).reshape(2, 3)
    t = g.from_dlpack(mine)
    assert t.data_ptr() == mine.ctypes.data and t.numpy().tolist() == mine.tolist()


def test_dlpack_keeps_the_memory():
    array = np.arange(5.0)
    alive = weakref.ref(array)
    t = g.from_dlpack(array)
    del array
    gc.collect()
    assert t.tolist() == [0, 1, 2, 3, 4] and alive() is not None
    del t
    g.ones(1)
    gc.collect()
    assert alive() is None
    x = g.ones(1000)
    array = np.from_dlpack(x)
    del x
    gc.collect()
    assert array.sum() == 1000


def test_dlpack_refuses_what_it_cannot_share():
    with pytest.raises(BufferError, match="requires grad"):
        g.ones(1, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="CPU"):
        g.ones(1).__dlpack__(dl_device=(2, 0))
    locked = np.ones(2)
    locked.flags.writeable = False
    with pytest.raises(BufferError):
        g.from_dlpack(locked)
    with pytest.raises(g.Error, match="no dtype"):
        g.from_dlpack(np.ones(2, dtype=np.int16))
    with pytest.raises(g.Error, match="negative"):
        g.from_dlpack(np.ones(4)[::-1])
    capsule = g.ones(1).__dlpack__()
    g.from_dlpack(capsule)
    with pytest.raises(ValueError):
        g.from_dlpack(capsule)  # a capsule is used once
    with pytest.raises(Exception):
        g.from_dlpack("text")
    g.ones(1).__dlpack__()  # nobody takes it


# --- pickles ---


@pytest.mark.parametrize("dtype", DTYPES + [g.bfloat16], ids=str)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_tensors_are_pickled(dtype, protocol):
    x = g.ones(2, 3, dtype=dtype)
    again = pickle.loads(pickle.dumps(x, protocol))
    assert g.equal(again, x) and again.dtype is dtype and again.data_ptr() != x.data_ptr()


def test_views_keep_sharing_and_attributes_stay():
    x = g.randn(3, 4)
    x.note = "mine"
    a, b, c = pickle.loads(pickle.dumps((x, x.t(), x[1])))
    assert a.note == "mine" and b.is_set_to(a.t()) and c.is_set_to(a[1])
    a.zero_()
    assert c.tolist() == [0] * 4
    p = pickle.loads(pickle.dumps(nn.Parameter(g.ones(2))))
    assert isinstance(p, nn.Parameter) and p.requires_grad and p.is_leaf
    empty, scalar = pickle.loads(pickle.dumps((g.empty(0, 3), g.tensor(2.5))))
    assert empty.shape == (0, 3) and scalar.item() == 2.5


def test_what_cannot_be_pickled_says_so():
    x = g.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaves"):
        pickle.dumps(x * 2)
    x.register_hook(lambda grad: grad)
    with pytest.warns(UserWarning, match="1 hooks"):
        assert g.equal(pickle.loads(pickle.dumps(x)), x)


def test_made_up_pickles_are_errors():
    from grapnel import _core
    flat = g.ones(4)
    for offset, sizes, strides in ((0, (5,), (1,)), (-1, (2,), (1,)), (3, (2,), (1,)), (0, (2, 2), (1,)), (0, (2**62,), (2**62,)), (0, (2,), (-1,))):
        with pytest.raises(g.Error):
            _core._view_of_flat(flat, offset, sizes, strides)


def test_deepcopy():
    x = g.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [3, 3] and y.grad is not x.grad and y.requires_grad


# --- files ---


def test_safetensors(tmp_path):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    path = tmp_path / "net.safetensors"
    g.save(net.state_dict(), path)
    state = g.load(path)
    assert set(state) == set(net.state_dict())
    other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    other.load_state_dict(state)
    assert g.equal(other[0].weight, net[0].weight)
    g.save({"half": g.ones(3, dtype=g.bfloat16)}, str(path))
    assert g.load(path)["half"].dtype is g.bfloat16


def test_damaged_files_are_errors(tmp_path):
    path = tmp_path / "x.safetensors"
    g.save({"a": g.ones(3)}, path)
    whole = path.read_bytes()
    for data in (b"", whole[:7], whole[:-1], b"\xff" * 64, whole.replace(b"F32", b"F99"), whole[:20] + b"\0" * 30 + whole[50:]):
        path.write_bytes(data)
        try:
            g.load(path)
        except g.Error as error:
            assert "x.safetensors" in str(error)
    with pytest.raises(g.Error):
        g.load(tmp_path / "nothing")
    with pytest.raises(TypeError):
        g.save({"a": 3}, path)


def test_copies_of_several_tensors_with_gradients():
    """Objects of gradients come and go while they are copied; none is taken for another at its address."""
    tensors = [nn.Parameter(g.full((n,), float(n))) for n in range(1, 9)]
    for t in tensors:
        t.grad = t.detach() * 10
    copies = copy.deepcopy(tensors + tensors)
    assert all(a.grad.tolist() == b.grad.tolist() and a.tolist() == b.tolist() for a, b in zip(tensors, copies))
    assert copies[0] is copies[8] and copies[0].grad is copies[8].grad
