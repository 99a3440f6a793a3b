"""Gradients: passes, scopes, and the hooks of the backward graph."""
from grapnel import _core
from grapnel._modes import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from grapnel.autograd import graph  # noqa: F401
from grapnel.autograd import function  # noqa: F401
from grapnel.autograd.anomaly import detect_anomaly, set_detect_anomaly  # noqa: F401
from grapnel.autograd.function import Function  # noqa: F401
from grapnel.autograd.gradcheck import gradcheck, gradgradcheck  # noqa: F401


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of `tensors` to the grad of the leaves they were computed from."""
    _core._backward(tensors, grad_tensors, retain_graph, create_graph, inputs)


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=None, materialize_grads=False):
    """The gradients of `outputs` with respect to `inputs`, a tuple; nothing is added to any grad."""
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True gives unused inputs zeros, so allow_unused cannot be False.")
    found = _core._grad(outputs, inputs, grad_outputs, retain_graph, create_graph, bool(allow_unused) or materialize_grads)
    if materialize_grads:
        wanted = [inputs] if isinstance(inputs, _core.Tensor) else inputs
        found = tuple(_core.zeros_like(x) if g is None else g for g, x in zip(found, wanted))
    return found


class _Engine:
    @staticmethod
    def queue_callback(function):
        """Calls `function` once after all nodes of the innermost pass; only during a pass."""
        _core._queue_callback(function)


class Variable:
    """The older name of a tensor, and where PyTorch keeps its engine."""

    _execution_engine = _Engine

    def __new__(cls, data, requires_grad=False):
        return data.detach().requires_grad_(requires_grad)


queue_callback = _Engine.queue_callback
