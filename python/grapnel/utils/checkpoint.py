"""Trades memory for time: a part of the forward pass runs again during backward."""
from grapnel import _core
from grapnel._core import Tensor


def checkpoint(function, *args, use_reentrant=False, hooks_again=False, **kwargs):
    """function(*args, **kwargs) without keeping the tensors it saves; the first node of it that runs backward runs it again."""
    if use_reentrant:
        raise ValueError("checkpoint: only use_reentrant=False is offered; it does all that the other one does.")
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
    single = True

    def run(tensors):
        nonlocal single
        filled = list(args)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        out = function(*filled, **kwargs)
        single = isinstance(out, Tensor)
        return (out,) if single else tuple(out)

    out = _core._checkpoint(run, [args[i] for i in places], hooks_again)
    return out[0] if single else out
