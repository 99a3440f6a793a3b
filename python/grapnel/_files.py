"""Tensors outside of the program: files, pickles, and the memory of other libraries."""
import contextlib
import copyreg
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


def load(f, map_location=None, *, weights_only=True):
    """The tensors of a safetensors file, by name, or what torch.save wrote: tensors, numbers, texts, lists and dicts. `f` is a path or an open file.
    Nothing in a file is ever run as code, so an object of a class is an error."""
    if not weights_only:
        raise ValueError("load: files are read as data and never run as code; leave out weights_only=False.")
    if map_location is not None:
        _core.device(str(map_location))  # one that is not there is an error
    data = f.read() if hasattr(f, "read") else None
    if data is None:
        f, begin = os.fspath(f), b""
        with contextlib.suppress(OSError), open(f, "rb") as file:  # the reader says what is wrong with it
            begin = file.read(9)
    else:
        begin = data[:9]
    # A ZIP archive, or the older form, which the reader refuses by name. A safetensors file has a length there, and then a brace.
    if begin[:4] in (b"PK\3\4", b"\x80\2\x8a\x0a") and begin[8:] != b"{":
        return _core._load_pt(f) if data is None else _core._parse_pt(data)
    tensors, _ = _core._load_safetensors(f) if data is None else _core._parse_safetensors(data)
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
# Functions of the library go by their names, as those of Python do: layers keep them as attributes.
copyreg.pickle(type(_core.exp), lambda function: function.__name__)
