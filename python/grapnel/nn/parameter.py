"""Parameter and Buffer: tensors that a module registers when they are assigned to an attribute."""
from grapnel import _core
from grapnel._core import Tensor


class Parameter(Tensor):
    """A leaf that is a parameter of the module it is assigned to."""

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = _core.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: expected a tensor, got {type(data).__name__}.")
        return _core._subclass(cls, data, requires_grad)

    def __init__(self, data=None, requires_grad=True):
        pass

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()


class Buffer(Tensor):
    """A tensor that is a buffer of the module it is assigned to: saved with it, and no parameter."""

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = _core.empty(0)
        self = _core._subclass(cls, data, data.requires_grad)
        self.persistent = persistent
        return self

    def __init__(self, data=None, *, persistent=True):
        pass


_core._set_member_types(Parameter, Buffer)
