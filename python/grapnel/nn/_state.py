"""Saving and loading of modules."""
import collections

from grapnel import _core
from grapnel.errors import Error
from grapnel.nn._hooks import _IncompatibleKeys
from grapnel.nn.parameter import Parameter

_core._set_state_dict_type(collections.OrderedDict)


class State:
    """The part of Module that saves and loads."""

    __slots__ = ()

    def state_dict(self, *, destination=None, prefix="", keep_vars=False):
        """Parameters and persistent buffers by path. They share memory with the module and have no history unless `keep_vars`."""
        entries, metadata = _core._state_dict(self, prefix, keep_vars)
        for path, module in self.named_modules():
            if type(module).get_extra_state is not State.get_extra_state:
                entries[f"{prefix}{path}.{_EXTRA}" if path else prefix + _EXTRA] = module.get_extra_state()
        if destination is None:
            entries._metadata = metadata
            return entries
        destination.update(entries)
        if hasattr(destination, "_metadata"):
            destination._metadata.update(metadata)
        return destination

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies values in, or with `assign` takes the tensors themselves. Wrong shapes are an error, and so are missing and unexpected names when
        `strict`; then no value is changed."""
        if not hasattr(state_dict, "items"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        entries = dict(state_dict)
        extra, missing = {}, []
        for path, module in self.named_modules():
            if type(module).set_extra_state is State.set_extra_state:
                continue
            name = f"{path}.{_EXTRA}" if path else _EXTRA
            if name in entries:
                extra[module] = entries.pop(name)
            else:
                missing.append(name)
        if strict and missing:
            raise Error(f"load_state_dict: missing: {', '.join(map(repr, missing))}")
        keys = _IncompatibleKeys(*_core._load_state_dict(self, entries, getattr(state_dict, "_metadata", None), strict))
        for module, value in extra.items():
            module.set_extra_state(value)
        if assign:
            for path, module in self.named_modules():
                for kind in ("parameters", "buffers"):
                    for name, old in _core._members(module, kind):
                        new = entries.get(f"{path}.{name}" if path else name)
                        if new is None or old is None:
                            continue
                        if kind == "parameters" and not isinstance(new, Parameter):
                            new = Parameter(new, old.requires_grad)
                        _core._set_member(module, kind, name, new, True)
        keys.missing_keys.extend(missing)
        return keys

    def get_extra_state(self):
        """What else is saved with the module; for subclasses, together with set_extra_state."""
        raise NotImplementedError("get_extra_state: this module has none")

    def set_extra_state(self, state):
        raise NotImplementedError("set_extra_state: this module has none")


_EXTRA = "_extra_state"
