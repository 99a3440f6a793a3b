"""Hooks of modules: what can be registered on one, and on all."""
import collections

from grapnel import _core

IncompatibleKeys = collections.namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


class _IncompatibleKeys(IncompatibleKeys):
    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class Hooks:
    """The part of Module that registers hooks. Each returns a handle with remove()."""

    __slots__ = ()

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """hook(module, args) or hook(module, args, kwargs) before forward; may return new arguments."""
        return _core._add_forward_pre_hook(self, hook, with_kwargs, prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """hook(module, args, output) after forward; may return another output. With `always_call` also after an error."""
        return _core._add_forward_hook(self, hook, with_kwargs, prepend, always_call)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """hook(module, grad_output) when the gradients of the results are complete; may return others."""
        return _core._add_full_backward_pre_hook(self, hook, prepend)

    def register_full_backward_hook(self, hook, prepend=False, *, after_parameters=False):
        """hook(module, grad_input, grad_output) when the gradients of the arguments are complete; may return others for grad_input."""
        return _core._add_full_backward_hook(self, hook, prepend, after_parameters)

    def register_backward_hook(self, hook):
        raise NotImplementedError("register_backward_hook saw the gradients of a module's last op only. Use register_full_backward_hook.")

    def register_state_dict_pre_hook(self, hook):
        """hook(module, prefix, keep_vars) before the module is saved."""
        return _core._add_state_dict_pre_hook(self, hook, False)

    def register_state_dict_post_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata) when it has been; changes the dict."""
        return _core._add_state_dict_post_hook(self, hook, False)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) before loading."""
        return _core._add_load_state_dict_pre_hook(self, hook, False)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return _core._add_load_state_dict_pre_hook(self, hook if with_module else lambda module, *args: hook(*args), False)

    def register_load_state_dict_post_hook(self, hook):
        """hook(module, incompatible_keys) after loading; changes the two lists."""
        return _core._add_load_state_dict_post_hook(self, hook, _IncompatibleKeys)


def _listed(kind):
    return property(lambda self: {id: name for k, id, name in _core._module_hooks(self) if k == kind})


# What is registered, by id. PyTorch's names.
Hooks._forward_pre_hooks = _listed("forward pre-hook")
Hooks._forward_hooks = _listed("forward hook")
Hooks._backward_pre_hooks = _listed("full backward pre-hook")
Hooks._backward_hooks = _listed("full backward hook")
Hooks._state_dict_hooks = _listed("state_dict post-hook")
Hooks._state_dict_pre_hooks = _listed("state_dict pre-hook")
Hooks._load_state_dict_pre_hooks = _listed("load_state_dict pre-hook")
Hooks._load_state_dict_post_hooks = _listed("load_state_dict post-hook")


def register_module_forward_pre_hook(hook):
    """A forward pre-hook of all modules."""
    return _core._add_forward_pre_hook(None, hook, False, False)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """A forward hook of all modules."""
    return _core._add_forward_hook(None, hook, with_kwargs, False, always_call)


def register_module_full_backward_pre_hook(hook):
    """A full backward pre-hook of all modules."""
    return _core._add_full_backward_pre_hook(None, hook, False)


def register_module_full_backward_hook(hook):
    """A full backward hook of all modules."""
    return _core._add_full_backward_hook(None, hook, False, False)


def register_module_parameter_registration_hook(hook):
    """hook(module, name, parameter) sees every parameter that is registered, and may return another."""
    return _core._add_parameter_registration_hook(hook)


def register_module_buffer_registration_hook(hook):
    """hook(module, name, buffer) sees every buffer that is registered, and may return another."""
    return _core._add_buffer_registration_hook(hook)


def register_module_module_registration_hook(hook):
    """hook(module, name, submodule) sees every submodule that is registered, and may return another."""
    return _core._add_module_registration_hook(hook)
