"""Do gradients agree with finite differences?"""
from grapnel import _core
from grapnel._core import Tensor


def _check(function, inputs, eps, atol, rtol, raise_exception, second):
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    places = [i for i, value in enumerate(inputs) if isinstance(value, Tensor)]

    def run(tensors):
        filled = list(inputs)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        out = function(*filled)
        out = [out] if isinstance(out, Tensor) else list(out)
        return tuple(t for t in out if isinstance(t, Tensor))

    return _core._gradcheck(run, [inputs[i] for i in places], eps, atol, rtol, raise_exception, second)


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """Compares the gradient of every output element with finite differences, for all inputs that require grad, which are float64."""
    return _check(func, inputs, eps, atol, rtol, raise_exception, False)


def gradgradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """The same for the gradients of the gradients."""
    return _check(func, inputs, eps, atol, rtol, raise_exception, True)
