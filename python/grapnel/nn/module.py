"""Module: the C++ one, with what Python says in its own way."""
import copy
import itertools

from grapnel import _core
from grapnel._core import Tensor
from grapnel.nn._hooks import Hooks
from grapnel.nn._state import State
from grapnel.nn._tree import map_tensors
from grapnel.nn.parameter import Parameter

_core._set_map_tensors(map_tensors)


class Module(Hooks, State, _core._Module):
    """Base of layers and networks. Parameters, buffers and submodules that are assigned to attributes are registered."""

    def __init__(self):
        _core._init_module(self)

    def forward(self, *input):
        raise NotImplementedError(f"Module [{type(self).__name__}] is missing the required \"forward\" function")

    # --- building ---

    def register_parameter(self, name, param):
        """Adds a parameter, or None to say that there could be one."""
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' (grapnel.nn.Parameter or None required)")
        self._check_new_name(name, "parameter")
        _core._set_member(self, "parameters", name, param, True)

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a tensor that is no parameter but part of the state; not saved unless `persistent`."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (grapnel.Tensor or None required)")
        self._check_new_name(name, "buffer")
        _core._set_member(self, "buffers", name, tensor, persistent)
        if not persistent:
            self.__dict__.setdefault("_non_persistent_buffers_set", set()).add(name)

    def register_module(self, name, module):
        """Adds a submodule."""
        if not isinstance(module, _core._Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._check_new_name(name, "module")
        _core._set_member(self, "modules", name, module, True)

    add_module = register_module

    def _check_new_name(self, name, what):
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name or not name:
            raise KeyError(f"{what} name can't contain \".\"" if name else f"{what} name can't be empty string \"\"")
        if name in self.__dict__ or (hasattr(type(self), name) and name not in dict(self.named_children())):
            raise KeyError(f"attribute '{name}' already exists")

    # --- what is inside ---

    _parameters = property(lambda self: dict(_core._members(self, "parameters")))
    _buffers = property(lambda self: dict(_core._members(self, "buffers")))
    _modules = property(lambda self: dict(_core._members(self, "modules")))

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """This module and all below it, with their paths."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in _core._members(self, "modules"):
            yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self):
        for _, module in self.named_modules():
            yield module

    def named_children(self):
        seen = set()
        for name, child in _core._members(self, "modules"):
            if child not in seen:
                seen.add(child)
                yield name, child

    def children(self):
        for _, child in self.named_children():
            yield child

    def _named_tensors(self, kind, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in _core._members(module, kind):
                if tensor is None or tensor in seen:
                    continue
                if remove_duplicate:
                    seen.add(tensor)
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named_tensors("parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        return self._named_tensors("buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target):
        """The module at a path like "encoder.fc"."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def get_parameter(self, target):
        path, _, name = target.rpartition(".")
        parameter = getattr(self.get_submodule(path), name)
        if not isinstance(parameter, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return parameter

    def get_buffer(self, target):
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return module._buffers[name]

    # --- what it does ---

    def apply(self, fn):
        """Calls fn(module) on all modules, children first."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        _core._zero_grad_module(self, set_to_none)

    def to(self, *args, **kwargs):
        """Converts floating-point parameters and buffers; identity and hooks of the tensors stay."""
        kinds = [a for a in itertools.chain(args, (kwargs.get("dtype"), kwargs.get("tensor"))) if a is not None]
        for kind in kinds:
            if isinstance(kind, Tensor):
                kind = kind.dtype
            if isinstance(kind, _core.dtype):
                if not kind.is_floating_point:
                    raise TypeError(f"nn.Module.to only accepts floating point dtypes, but got desired dtype={kind}")
                _core._convert_module(self, kind)
            elif not isinstance(kind, bool):
                _core.empty(0).to(kind)  # a device that is not there is an error
        return self

    def float(self):
        return self.to(_core.dtype.float32)

    def double(self):
        return self.to(_core.dtype.float64)

    def half(self):
        return self.to(_core.dtype.float16)

    def bfloat16(self):
        return self.to(_core.dtype.bfloat16)

    def type(self, dst_type):
        return self.to(dst_type)

    def cpu(self):
        return self

    # --- as text ---

    def extra_repr(self):
        """What stands between the brackets of its line."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in _core._members(self, "modules")]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        if not lines and not children:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"

    def __dir__(self):
        names = [name for kind in ("parameters", "buffers", "modules") for name, _ in _core._members(self, kind)]
        return sorted(set(super().__dir__()) | set(names))

    # --- copies ---

    def _empty_like(self):
        """A new object of the same class with a module of its own, members apart."""
        new = type(self).__new__(type(self))
        _core._init_module(new)
        return new

    def __deepcopy__(self, memo):
        new = self._empty_like()
        memo[id(self)] = new
        for kind in ("parameters", "buffers", "modules"):
            for name, value in _core._members(self, kind):
                persistent = name not in self.__dict__.get("_non_persistent_buffers_set", ())
                _core._set_member(new, kind, name, copy.deepcopy(value, memo), persistent)
        _core._copy_module_hooks(self, new)
        new.training = self.training
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return new

    def __copy__(self):
        new = self._empty_like()
        new.__setstate__(self.__getstate__())
        _core._copy_module_hooks(self, new)
        return new

    def __getstate__(self):
        state = dict(self.__dict__)
        state["training"] = self.training
        for kind in ("parameters", "buffers", "modules"):
            state[f"_{kind}"] = dict(_core._members(self, kind))
        return state

    def __setstate__(self, state):
        state = dict(state)
        training = state.pop("training", True)
        transient = state.get("_non_persistent_buffers_set", ())
        _core._init_module(self)
        for kind in ("parameters", "buffers", "modules"):
            for name, value in state.pop(f"_{kind}", {}).items():
                _core._set_member(self, kind, name, value, name not in transient)
        self.__dict__.update(state)
        self.training = training

    def __reduce_ex__(self, protocol):
        return _new_object, (type(self),), self.__getstate__()


def _new_object(cls):
    return cls.__new__(cls)
