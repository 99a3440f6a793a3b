"""Tensors inside of containers: tuples, lists, dicts and dataclasses."""
import dataclasses

from grapnel._core import Tensor


def map_tensors(value, function):
    """`value` with function(tensor) in the place of every tensor in it; the very same object if no tensor is replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        parts = [map_tensors(part, function) for part in value]
        if all(new is old for new, old in zip(parts, value)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        parts = {key: map_tensors(part, function) for key, part in value.items()}
        if all(parts[key] is part for key, part in value.items()):
            return value
        if type(value) is dict:
            return parts
        copy = value.copy()
        copy.update(parts)
        return copy
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        changed = {name: map_tensors(part, function) for name, part in fields.items()}
        changed = {name: part for name, part in changed.items() if part is not fields[name]}
        return dataclasses.replace(value, **changed) if changed else value
    return value
