"""Modules that hold others: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""
import collections
import operator

from grapnel import _core
from grapnel.nn.module import Module
from grapnel.nn.parameter import Parameter


class _Numbered(Module):
    """Members under the names "0", "1", ..."""

    _kind = "modules"

    def _values(self):
        return [value for _, value in _core._members(self, self._kind)]

    def _put(self, values):
        for name, _ in _core._members(self, self._kind):
            delattr(self, name)
        for i, value in enumerate(values):
            setattr(self, str(i), value)

    def _place(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        return index % len(self)

    def __len__(self):
        return len(_core._members(self, self._kind))

    def __iter__(self):
        return iter(self._values())

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._part(index)
        return self._values()[self._place(index)]

    def _part(self, index):
        return type(self)(self._values()[index])

    def __setitem__(self, index, value):
        setattr(self, _core._members(self, self._kind)[self._place(index)][0], value)

    def __delitem__(self, index):
        values = self._values()
        if not isinstance(index, slice):
            index = self._place(index)
        del values[index]
        self._put(values)

    def __contains__(self, value):
        return any(value is one for one in self._values())

    def append(self, value):
        setattr(self, str(len(self)), value)
        return self

    def extend(self, values):
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values):
        return self.extend(values)

    def __add__(self, values):
        return type(self)([*self, *values])

    def insert(self, index, value):
        values = self._values()
        values.insert(index, value)
        self._put(values)

    def pop(self, index=-1):
        value = self[index]
        del self[index]
        return value


class Sequential(_Numbered):
    """Feeds each module's result to the next."""

    def __init__(self, *modules):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], dict):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(modules):
                self.add_module(str(i), module)

    def _part(self, index):
        return type(self)(collections.OrderedDict(_core._members(self, "modules")[index]))

    def __add__(self, others):
        return Sequential(*self, *others)

    def forward(self, input):
        for module in self:
            input = module(input)
        return input


class ModuleList(_Numbered):
    """Modules by position, which the owner calls as it likes."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self


class ParameterList(_Numbered):
    """Parameters by position. Tensors that are put in become parameters."""

    _kind = "parameters"

    def __init__(self, values=None):
        super().__init__()
        if values is not None:
            self.extend(values)

    def append(self, value):
        return super().append(_parameter(value))

    def __setitem__(self, index, value):
        super().__setitem__(index, _parameter(value))

    def extra_repr(self):
        return "\n".join(f"({i}): {_described(p)}" for i, p in enumerate(self))


def _parameter(value):
    return value if isinstance(value, Parameter) or value is None else Parameter(value)


def _described(p):
    return f"Parameter containing: [{p.dtype} of size {'x'.join(map(str, p.shape))}]"


class _Named(Module):
    _kind = "modules"

    def _dict(self):
        return dict(_core._members(self, self._kind))

    def __getitem__(self, key):
        return self._dict()[key]

    def __delitem__(self, key):
        if key not in self._dict():
            raise KeyError(key)
        delattr(self, key)

    def __len__(self):
        return len(_core._members(self, self._kind))

    def __iter__(self):
        return iter(self._dict())

    def __contains__(self, key):
        return key in self._dict()

    def clear(self):
        for key in self.keys():
            del self[key]

    def pop(self, key):
        value = self[key]
        del self[key]
        return value

    def get(self, key, default=None):
        return self._dict().get(key, default)

    def keys(self):
        return self._dict().keys()

    def values(self):
        return self._dict().values()

    def items(self):
        return self._dict().items()

    def update(self, values):
        for key, value in values.items() if hasattr(values, "items") else values:
            self[key] = value


class ModuleDict(_Named):
    """Modules by name."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __setitem__(self, key, module):
        if key in self:
            setattr(self, key, module)
        else:
            self.add_module(key, module)


class ParameterDict(_Named):
    """Parameters by name. Tensors that are put in become parameters."""

    _kind = "parameters"

    def __init__(self, values=None):
        super().__init__()
        if values is not None:
            self.update(values)

    def __setitem__(self, key, value):
        setattr(self, key, _parameter(value))

    def extra_repr(self):
        return "\n".join(f"({key}): {_described(p)}" for key, p in self.items())
