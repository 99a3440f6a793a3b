"""Optimisers and schedules of learning rates."""
from grapnel import _core
from grapnel.optim import lr_scheduler  # noqa: F401
from grapnel.optim.optimizer import Native as _Native
from grapnel.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook  # noqa: F401


class SGD(_Native):
    """Gradient descent, with momentum if asked for."""

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False):
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize))


class Adam(_Native):
    """Steps scaled by running means of gradients and their squares."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize))


class AdamW(_Native):
    """Adam with weight decay apart from the gradient."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize))


class Adagrad(_Native):
    """Steps that shrink with the sum of squared gradients."""

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, *, maximize=False):
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, eps=eps,
                                      maximize=maximize))


class RMSprop(_Native):
    """Steps divided by a running root mean square of gradients."""

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, *, maximize=False):
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered, maximize=maximize))


class Lion(_Native):
    """Steps by the sign of a running mean."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0, *, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))


class LBFGS(_Native):
    """Quasi-Newton steps from a short history of gradients; step() needs a closure."""

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100, line_search_fn=None):
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_eval or 0, tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
                                      history_size=history_size, line_search_fn=line_search_fn))


class StepInBackward:
    """Steps every parameter during the backward pass, as soon as its gradient is complete, and frees the gradient. Until remove(), or the end of a
    `with` block."""

    def __init__(self, optimizer, *, accumulate=1, clip_value=None, clip_norm=None):
        self.optimizer = optimizer
        self._impl = _core._hooks._StepInBackward(optimizer, accumulate, clip_value, clip_norm)

    def remove(self):
        self._impl.remove()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()
