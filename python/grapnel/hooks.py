"""Ready-made hooks: what changes gradients, counts them, writes them down, and finds where a NaN was born.

Each is C++'s, works in every mode and becomes part of a compiled pass. What stays registered has remove(), and ends with a `with` block.
"""
import collections
import os
import weakref

from grapnel import _core
from grapnel._core import Tensor
from grapnel._core._hooks import (  # noqa: F401
    ClipNorm, ClipValue, Freeze, GradientHook, JsonLinesWriter, LoggedHistogram, LogWriter, Mask, Noise, Reverse, Scale, TensorBoardWriter)

# --- what changes gradients ---


class Chain:
    """One hook after the other, with functions of Python's among them. A function that returns None changes nothing."""

    def __init__(self, *hooks):
        self.hooks = tuple(part for hook in hooks for part in (hook.hooks if isinstance(hook, Chain) else (hook,)))

    @property
    def name(self):
        return " | ".join(_name(hook) for hook in self.hooks)

    def __call__(self, grad):
        for hook in self.hooks:
            changed = hook(grad)
            grad = grad if changed is None else changed
        return grad

    def __repr__(self):
        return f"<hook '{self.name}'>"


def _name(hook):
    return hook.name if isinstance(hook, (GradientHook, Chain)) else getattr(hook, "__qualname__", type(hook).__qualname__)


def _then(first, second):
    if isinstance(first, GradientHook) and isinstance(second, GradientHook):
        return first._then(second)
    return Chain(first, second) if callable(first) and callable(second) else NotImplemented


for _type in (GradientHook, Chain):
    _type.__or__ = _then
    _type.__ror__ = lambda self, first: _then(first, self)


def attach(target, hook):
    """Registers a hook on the gradient of a tensor, under its name, and returns the handle. For a module, or several tensors, it is registered on each
    that requires grad, and the result is a list."""
    if isinstance(target, Tensor):
        if isinstance(hook, GradientHook):
            return _core._hooks._attach(target, hook)
        return target.register_hook(hook, name=_name(hook))
    tensors = target.parameters() if hasattr(target, "parameters") else target
    return [attach(tensor, hook) for tensor in tensors if tensor.requires_grad]


def through(x, hook):
    """`x` behind the hook: only the gradient of this use of it is changed. `through(features, Reverse(0.1))` is a gradient reversal layer."""
    out = x.view_as(x)
    if out.requires_grad:
        attach(out, hook)
    return out


# --- statistics and logs ---

Row = collections.namedtuple("Row", ["name", "calls", "elements", "mean", "deviation", "min", "max", "norm", "histogram"])


class Statistics(_core._hooks._Statistics):
    """Counts, means, deviations and extremes of gradients. Nothing is looked at before report()."""

    def __init__(self, *, bins=0, low=-1.0, high=1.0):
        super().__init__(bins, low, high)

    def attach(self, target, tensor=None):
        """All parameters of a module under their names; or attach(name, tensor)."""
        if isinstance(target, str):
            return super().attach(target, tensor)
        return self.attach_module(target)

    def report(self):
        """A Row for each gradient. A histogram is what is below `low`, the bins, what is from `high` on, and NaN."""
        return [Row(*row) for row in super().report()]

    def state_dict(self):
        return self.save()

    def load_state_dict(self, state_dict):
        self.load(state_dict)


class GradientLogger:
    """Writes norm, mean and largest element of every parameter's gradient, every so many steps. The writer is one of these, or any object with
    scalar(tag, step, value), histogram(tag, step, values) and flush()."""

    def __init__(self, module, writer, *, every=1, all_steps=False, bins=0, low=-1.0, high=1.0):
        native = type(writer) in (JsonLinesWriter, TensorBoardWriter)
        self.writer = writer
        self._impl = _core._hooks._GradientLogger(module, writer if native else None, None if native else weakref.ref(writer), every, all_steps, bins,
                                                  low, high)

    steps = property(lambda self: self._impl.steps())

    def step(self):
        """Counts one step and writes an entry if it is time."""
        self._impl.step()

    def state_dict(self):
        return self._impl.save()

    def load_state_dict(self, state_dict):
        self._impl.load(state_dict)

    def remove(self):
        """Removes its hooks; twice is silent."""
        self._impl.remove()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()


# --- guards ---

Report = collections.namedtuple("Report", ["phase", "op", "where", "layer"])


class NanGuard(_core._hooks._NanGuard):
    """Finds where the first NaN or infinity was born: op, line, layer and rank. Nothing is looked at before check() or find()."""

    def __init__(self, module, *, rank="", gradients=True):
        super().__init__(module, rank, gradients)

    def check(self):
        """Raises if something since the last call was not finite."""
        super().check()

    def find(self):
        """The same without raising: a Report, or None."""
        found = super().find()
        return None if found is None else Report(*found)


class PerSampleNorms(_core._hooks._PerSampleNorms):
    """The norm of the gradient of each single example of a batch, from one ordinary backward pass."""

    def __init__(self, module, *, loss_is_mean=True):
        super().__init__(module, loss_is_mean)

    def take(self):
        """The norms since the last call, one per example, over all parameters."""
        return super().take()


# --- saved tensors ---


class SavedHook:
    """Where tensors that wait for the backward pass are kept. Use it as `with`; inside, what is saved goes there."""

    def __init__(self, hook):
        self._hook = hook
        self._scopes = []

    def __enter__(self):
        self._scopes.append(_core._hooks._SavedScope(self._hook))
        return self

    def __exit__(self, *error):
        self._scopes.pop()


def compress(dtype, next=None, *, min_bytes=4096):
    """Floating-point tensors are kept as `dtype`, which is narrower. What is left goes on to `next`: compress(bfloat16, save_to_disk(folder))."""
    if next is not None and not isinstance(next, SavedHook):
        raise TypeError(f"compress: next is what deflate() or save_to_disk() returned, got an object of type '{type(next).__name__}'.")
    return SavedHook(_core._hooks._compress(dtype, next and next._hook, min_bytes))


def deflate(*, min_bytes=4096):
    """Bytes are kept deflated; nothing is lost."""
    return SavedHook(_core._hooks._deflate(min_bytes))


def save_to_disk(folder, *, min_bytes=4096):
    """Each tensor is a file in `folder` until the graph lets go of it."""
    return SavedHook(_core._hooks._save_to_disk(os.fspath(folder), min_bytes))
