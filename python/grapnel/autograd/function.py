"""Operations with a forward and a backward of their own."""
import functools
import inspect

from grapnel import _core
from grapnel._core import FunctionCtx, Tensor  # noqa: F401
from grapnel._modes import no_grad


def _apply_with_defaults(cls, *args):
    """setup_context and backward know of all arguments of forward, also of those that a call leaves out."""
    bound = inspect.signature(cls.forward).bind(*args)
    bound.apply_defaults()
    return _core._apply(cls, *bound.args)


class Function:
    """Base of operations with a backward pass of their own: derive, write the static methods `forward(ctx, *args)` and `backward(ctx, *grads)`,
    and call `apply(*args)`. Or write `forward(*args)` and `setup_context(ctx, inputs, output)`.

    `backward` returns a gradient or None for each argument of forward. `ctx` is the node of the backward graph: what is set on it lives as long
    as the node.
    """

    _separate = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._ctx_type = type(FunctionCtx)(f"{cls.__name__}Backward", (FunctionCtx,), {"__module__": cls.__module__, "__slots__": ()})
        cls._separate = cls.setup_context is not Function.setup_context
        if cls._separate and "apply" not in cls.__dict__ and any(p.default is not p.empty for p in inspect.signature(cls.forward).parameters.values()):
            cls.apply = classmethod(_apply_with_defaults)

    @staticmethod
    def forward(*args):
        """Computes the outputs."""
        raise NotImplementedError("Function: write a static method forward(ctx, *args).")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keeps what backward needs, if forward has no ctx."""
        raise NotImplementedError("Function: write a static method setup_context(ctx, inputs, output).")

    @staticmethod
    def backward(ctx, *grads):
        """Computes the gradients of the arguments of forward from those of its outputs."""
        raise NotImplementedError("Function: write a static method backward(ctx, *grads), or call the operation under no_grad().")

    apply = classmethod(_core._apply)


class _NoSecondDerivative(Function):
    @staticmethod
    def forward(ctx, name, *tensors):
        ctx.name_of_function = name
        return tuple(t if t is None else t.detach() for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        raise _core._Error(f"{ctx.name_of_function}: its backward is @once_differentiable, so there are no gradients of its gradients.")


def once_differentiable(backward):
    """Says that a backward computes with more than ops, so that its results cannot be differentiated again: trying to is an error."""

    @functools.wraps(backward)
    def wrapper(ctx, *grads):
        with no_grad():
            out = backward(ctx, *grads)
        if not _core.is_grad_enabled() or not any(isinstance(g, Tensor) and g.requires_grad for g in (*grads, *ctx.saved_tensors)):
            return out
        single = not isinstance(out, (tuple, list))
        results = [out] if single else list(out)
        places = [i for i, t in enumerate(results) if isinstance(t, Tensor)]
        # Results that require grad, although nothing was recorded.
        marked = _NoSecondDerivative.apply(ctx.name(), *(results[i].detach().requires_grad_() for i in places))
        for i, t in zip(places, marked):
            results[i] = t
        return results[0] if single else tuple(results)

    return wrapper
