"""Sizes, types and what tensors do in Python that C++ says in another way."""
import collections
import copy as copying
import math

from grapnel import _core
from grapnel._core import Tensor, device, dtype


class Size(tuple):
    """The sizes of a tensor: a tuple."""

    __slots__ = ()

    def numel(self):
        """The product of the sizes."""
        return math.prod(self)

    def __repr__(self):
        return f"grapnel.Size({list(self)})"


# What max, min, sort and topk return.
ValuesIndices = collections.namedtuple("ValuesIndices", ["values", "indices"])
_core._set_types(Size, ValuesIndices)

float16 = half = dtype.float16
bfloat16 = dtype.bfloat16
float32 = float = dtype.float32
float64 = double = dtype.float64
uint8 = byte = dtype.uint8
int32 = int = dtype.int32
int64 = long = dtype.int64
bool = dtype.bool

dtype.__repr__ = dtype.__str__ = lambda self: f"grapnel.{self.name}"
dtype.is_floating_point = property(lambda self: "float" in self.name)
_BYTES = {"bool": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
dtype.itemsize = property(lambda self: _BYTES[self.name])
dtype.__reduce_ex__ = lambda self, _protocol: (_dtype_named, (self.name,))
device.__reduce__ = lambda self: (device, (str(self),))


def _dtype_named(name):
    return dtype[name]


def _numpy(self, *, force=False):
    """A NumPy array that shares the memory of the tensor."""
    import numpy

    if self.requires_grad and not force:
        raise RuntimeError("numpy(): the tensor requires grad, and nobody would see what is written to the array. Use x.detach().numpy().")
    if self.dtype is bfloat16:
        raise TypeError("numpy(): NumPy has no bfloat16. Convert the tensor first: x.float().numpy().")
    return numpy.asarray(memoryview(self.detach() if self.requires_grad else self))


def _array(self, dtype=None, copy=None):
    array = self.numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def _deepcopy(self, memo):
    if not self.is_leaf:
        raise RuntimeError("deepcopy: only leaves can be copied deeply; this tensor was made by a recorded op. Use x.detach().clone().")
    if id(self) in memo:
        return memo[id(self)]
    copy = _core._subclass(type(self), self.detach().clone(), self.requires_grad)
    memo[id(self)] = copy
    if self.grad is not None:
        copy.grad = copying.deepcopy(self.grad, memo)  # which keeps the object of grad, by whose address memo knows it
    copy.__dict__.update(self.__dict__)
    return copy


Tensor.numpy = _numpy
Tensor.__array__ = _array
# Arrays leave arithmetic with tensors to tensors, which take no arrays: whoever mixes them says which one it is to be.
Tensor.__array_ufunc__ = None
Tensor.__deepcopy__ = _deepcopy
Tensor.__reversed__ = lambda self: self.flip(0) if self.dim() else self
