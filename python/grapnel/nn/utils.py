"""Gradients and parameters of a whole model at once. Nothing here looks at values unless asked to."""
from grapnel import _core
from grapnel._core import Tensor
from grapnel._modes import no_grad


def _list(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters):
    return [p.grad for p in _list(parameters) if p.grad is not None]


def get_total_norm(tensors, norm_type=2.0):
    """The common norm of tensors."""
    tensors = _list(tensors)
    return _core.cat([t.flatten() for t in tensors]).norm(float(norm_type)) if tensors else _core.zeros(())


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scales all gradients in place so that their common norm is at most max_norm; returns the norm before. With `error_if_nonfinite` the norm is
    looked at, and NaN or infinity is an error."""
    return _core._train._clip_grad_norm_(_list(parameters), float(max_norm), float(norm_type), error_if_nonfinite)


@no_grad()
def clip_grad_value_(parameters, clip_value):
    """Clamps every element of every gradient to [-clip_value, clip_value], in place."""
    for grad in _grads(parameters):
        grad.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters):
    """All parameters in one row."""
    return _core.cat([p.flatten() for p in _list(parameters)])


@no_grad()
def vector_to_parameters(vec, parameters):
    """And back: the parameters get the values of the row."""
    parameters, start = _list(parameters), 0
    if (size := sum(p.numel() for p in parameters)) != vec.numel():
        raise ValueError(f"vector_to_parameters: the row has {vec.numel()} elements, the parameters {size}")
    for p in parameters:
        p.copy_(vec[start:start + p.numel()].view(p.shape))
        start += p.numel()
