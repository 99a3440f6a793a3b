"""Where PyTorch keeps the hooks of modules: dicts by id, beside the lists that Grapnel has.

Each is read from Grapnel's own lists when it is asked for. What a hook was registered with (`with_kwargs`, `always_call`) is remembered here.
"""
import functools
import inspect
import weakref

import grapnel
from grapnel import _core
from grapnel.compat._missing import NotOffered, Shim, ignore

nn = grapnel.nn

# How hooks are registered: the name of their list, and PyTorch's dict for those with a flag.
_KINDS = {
    "register_forward_pre_hook": ("forward pre-hook", {"with_kwargs": "_forward_pre_hooks_with_kwargs"}),
    "register_forward_hook": ("forward hook", {"with_kwargs": "_forward_hooks_with_kwargs", "always_call": "_forward_hooks_always_called"}),
    "register_full_backward_pre_hook": ("full backward pre-hook", {}),
    "register_full_backward_hook": ("full backward hook", {}),
}
_GLOBAL = {name.replace("register_", "register_module_"): what for name, what in _KINDS.items()}
_known = {}  # id of a hook -> (its module, which may have gone, or None for all modules; its list; its flags; its handle)


def _live(module, kind):
    """Hooks of a module, or of all, that are registered now: id -> name."""
    return {id: name for k, id, name in _core._module_hooks(module) if k == kind}


def _remembering(register, kind, flags, of_module):
    signature = inspect.signature(register)

    @functools.wraps(register)
    def wrapped(*args, **kwargs):
        handle = register(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        _known[handle.id] = (weakref.ref(args[0]) if of_module else None, kind, {flags[f] for f in flags if given.get(f)}, handle)
        return handle

    return wrapped


def _flagged(module, kind, flag):
    return {id: True for id in _live(module, kind) if id in _known and flag in _known[id][2]}


def hooks_dict_ref(self):
    """RemovableHandle.hooks_dict_ref: the hooks beside the one that this handle names."""
    if self.id not in _known:
        raise NotOffered("torch.utils.hooks.RemovableHandle.hooks_dict_ref of a hook that is no module's")
    module, kind, _, _ = _known[self.id]
    return _live(module and module(), kind)


def _full(register, name):
    """The older backward hook saw the gradients of a module's last op; the full one sees those of the module."""

    @functools.wraps(register)
    def wrapped(*args, **kwargs):
        ignore(f"{name}: it is {register.__name__} here")
        return register(*args, **kwargs)

    return wrapped


def _deletable(name):
    """A dict of hooks that a test deletes, to be a module of an older PyTorch: nothing happens."""
    return property(getattr(nn.Module, name).fget, None, lambda self: ignore(f"del torch.nn.Module.{name}"))


_registering = {name: _remembering(getattr(nn.Module, name), *what, True) for name, what in _KINDS.items()}
CHANGES = [
    *((nn.Module, name, register) for name, register in _registering.items()),
    *((nn.Module, name, property(lambda self, kind=kind, name=name: _flagged(self, kind, name)))
      for kind, flags in _KINDS.values() for name in flags.values()),
    *((nn.Module, name, _deletable(name)) for name in ("_state_dict_pre_hooks", "_load_state_dict_post_hooks")),
    (nn.Module, "register_backward_hook", _full(_registering["register_full_backward_hook"], "torch.nn.Module.register_backward_hook")),
    (_core.RemovableHandle, "hooks_dict_ref", hooks_dict_ref),
]

FUNCTIONS = {name: _remembering(getattr(nn.modules.module, name), *what, False) for name, what in _GLOBAL.items()}
FUNCTIONS["register_module_backward_hook"] = _full(FUNCTIONS["register_module_full_backward_hook"],
                                                   "torch.nn.modules.module.register_module_backward_hook")
_LISTS = {"_global_forward_pre_hooks": "forward pre-hook", "_global_forward_hooks": "forward hook",
          "_global_backward_pre_hooks": "full backward pre-hook", "_global_backward_hooks": "full backward hook"}


class GlobalHooks(Shim):
    """torch.nn.modules.module. Whoever assigns to one of its dicts of hooks, as tests do to empty them, ends the hooks in it."""

    def __getattr__(self, name):
        if name in _LISTS:
            return _live(None, _LISTS[name])
        if name == "_global_forward_hooks_always_called":
            return _flagged(None, "forward hook", "_forward_hooks_always_called")
        return super().__getattr__(name)

    def __setattr__(self, name, value):
        if name not in _LISTS:
            return super().__setattr__(name, value)
        for id in _live(None, _LISTS[name]):
            if id in _known:
                _known[id][3].remove()


def has_global_hooks():
    """Whether there are hooks that all modules share."""
    return bool(_core._module_hooks(None))
