"""Tensors outside of the program: files, pickles, and the memory of other libraries."""
import os
import weakref

from grapnel import _core
from grapnel._core import Tensor


def save(obj, path):
    """Writes tensors by name, such as a state_dict(), to a safetensors file. The file is whole at every moment."""
    if isinstance(obj, Tensor):
        obj = {"value": obj}
    if hasattr(obj, "state_dict"):
        obj = obj.state_dict()
    texts = {str(key): str(value) for key, value in getattr(obj, "metadata", {}).items()}
    _core._save_safetensors(os.fspath(path), obj, texts)


def load(path):
    """The tensors of a safetensors file, by name. Nothing in a file is ever run as code."""
    tensors, _ = _core._load_safetensors(os.fspath(path))
    return tensors


def from_dlpack(ext_tensor, *, stable=False):
    """A tensor over the memory of another library's, without a copy. With `stable` you promise that nobody writes to that memory while a
    compiled function that got the tensor runs: it then reads the memory where it lies, instead of a copy that it makes at every call."""
    if not hasattr(ext_tensor, "__dlpack__"):
        return _core._from_dlpack(ext_tensor, stable)  # a capsule
    device = ext_tensor.__dlpack_device__()
    if int(device[0]) != 1:
        raise BufferError(f"from_dlpack: the memory is on a device of type {device[0]}, and not the CPU's.")
    try:
        capsule = ext_tensor.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = ext_tensor.__dlpack__()
    return _core._from_dlpack(capsule, stable)


def _dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    if dl_device is not None and tuple(map(int, dl_device)) != (1, 0):
        raise BufferError(f"__dlpack__: the tensor is on the CPU, and not on {dl_device}.")
    if stream is not None:
        raise BufferError("__dlpack__: memory of the CPU has no stream.")
    return (self.clone() if copy else self)._dlpack(max_version is not None and max_version[0] >= 1)


Tensor.__dlpack__ = _dlpack
Tensor.__dlpack_device__ = lambda self: (1, 0)


# --- pickles ---


class _Storage:
    """The memory behind tensors, once in a pickle however many views there are."""

    alive = weakref.WeakValueDictionary()

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def of(cls, tensor):
        key = tensor._storage_key()
        found = cls.alive.get(key)
        if found is None:
            found = cls.alive[key] = cls(tensor.detach())
        return found

    def __reduce_ex__(self, protocol):
        return _flat, (self.tensor._storage_bytes(), self.tensor.dtype)


def _flat(data, dtype):
    return _core._flat_from_bytes(data, dtype)


def _rebuild(cls, flat, offset, size, stride, requires_grad, state):
    tensor = _core._view_of_flat(flat, offset, tuple(size), tuple(stride))
    if cls is Tensor:
        tensor = tensor.detach().requires_grad_(requires_grad)
    else:
        tensor = _core._subclass(cls, tensor, requires_grad)
    tensor.__dict__.update(state)
    return tensor


def _reduce(self, protocol):
    if not self.is_leaf:
        raise RuntimeError("pickle: only leaves can be pickled; this tensor was made by a recorded op. Use x.detach().")
    if _core.hooks_of(self):
        import warnings

        warnings.warn(f"pickle: the {len(_core.hooks_of(self))} hooks of a tensor are not pickled with it.", stacklevel=3)
    return _rebuild, (type(self), _Storage.of(self), self.storage_offset(), tuple(self.shape), tuple(self.stride()), self.requires_grad,
                      dict(self.__dict__))


Tensor.__reduce_ex__ = _reduce
