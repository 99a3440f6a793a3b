"""Module, and the hooks of all modules."""
from grapnel.nn._hooks import (  # noqa: F401
    _IncompatibleKeys, register_module_buffer_registration_hook, register_module_forward_hook, register_module_forward_pre_hook,
    register_module_full_backward_hook, register_module_full_backward_pre_hook, register_module_module_registration_hook,
    register_module_parameter_registration_hook)
from grapnel.nn.module import Module  # noqa: F401
