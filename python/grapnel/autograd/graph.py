"""The backward graph: its nodes, and the hooks that see it."""
import collections
import contextlib

from grapnel import _core
from grapnel._core import Node, hooks_of, will_fire  # noqa: F401

GradientEdge = collections.namedtuple("GradientEdge", ["node", "output_nr"])


def get_gradient_edge(tensor):
    """The slot of the node that the gradient of a tensor flows into."""
    return GradientEdge(*_core._gradient_edge(tensor))


class saved_tensors_hooks(contextlib.ContextDecorator):
    """Inside, tensors saved for backward are packed by `pack_hook` and read back by `unpack_hook`. Only the innermost pair applies."""

    def __init__(self, pack_hook, unpack_hook):
        for hook in (pack_hook, unpack_hook):
            if not callable(hook):
                raise TypeError(f"saved_tensors_hooks: a hook is a callable, got {type(hook).__name__}.")
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._scopes = []

    def __enter__(self):
        self._scopes.append(_core._SavedTensorHooks(self.pack_hook, self.unpack_hook))

    def __exit__(self, *error):
        if self._scopes:
            self._scopes.pop()


class save_on_cpu(saved_tensors_hooks):
    """Keeps saved tensors in memory of the CPU."""

    def __init__(self, pin_memory=False):
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class disable_saved_tensors_hooks(contextlib.ContextDecorator):
    """Inside, installing saved-tensor hooks fails with the message."""

    def __init__(self, error_message):
        self.message = error_message
        self._scopes = []

    def __enter__(self):
        self._scopes.append(_core._DisableSavedTensorHooks(self.message))

    def __exit__(self, *error):
        if self._scopes:
            self._scopes.pop()


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls fn(grads) when the gradients of all tensors that a pass reaches are there, or with mode="any" fn(grad) with the first."""
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: mode is 'all' or 'any', got {mode!r}.")
    return _core._register_multi_grad_hook(list(tensors), fn, mode == "any")
