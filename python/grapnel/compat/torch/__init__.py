"""The names of `torch`: Grapnel's own where they are equal, and what is called otherwise here."""
import contextlib
import pickle

import grapnel
from grapnel import _core
from grapnel.compat._missing import ignore, module

# Grapnel's names that mean something else in PyTorch, or nothing.
_HIDDEN = {"Error", "InternalError", "GraphBreak", "trace", "compat", "invoke", "opaque", "declared", "Backend", "Compiled", "CompiledBackward",
           "CompileStats", "Graph", "GraphInstruction", "GraphValue", "Lifted", "Reason", "reset_compile_cache", "set_hook_audit", "set_replay_audit",
           "testing"}


float32, float64, float16, bfloat16 = grapnel.float32, grapnel.float64, grapnel.float16, grapnel.bfloat16
int32, int64, uint8 = grapnel.int32, grapnel.int64, grapnel.uint8


def _save(obj, f, *args, **kwargs):
    """Pickles to a file or a path; what can be saved is what can be pickled."""
    with open(f, "wb") if isinstance(f, str) else contextlib.nullcontext(f) as file:
        pickle.dump(obj, file)


def _load(f, *args, **kwargs):
    with open(f, "rb") if isinstance(f, str) else contextlib.nullcontext(f) as file:
        return pickle.load(file)


def _cond(pred, true_fn, false_fn, operands=()):
    return grapnel.cond(pred, true_fn, false_fn, list(operands))


def _no_effect(name, result=None):
    """A setting that is accepted and changes nothing here."""

    def accept(*args, **kwargs):
        ignore(name)
        return result

    return accept


def _is_floating_point(t):
    return t.dtype.is_floating_point


top = module(
    "torch", [grapnel], _HIDDEN,
    __version__="2.13.0a0+grapnel",
    **{name: getattr(grapnel, name) for name in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool", "float", "double",
                                                 "half", "int", "long", "Tensor", "Size", "device", "dtype")},
    inf=float("inf"), nan=float("nan"), pi=3.141592653589793, e=2.718281828459045,
    strided="strided", contiguous_format="contiguous_format", preserve_format="preserve_format",
    save=_save, load=_load, cond=_cond,
    is_floating_point=_is_floating_point, is_complex=lambda t: False, is_storage=lambda t: False,
    are_deterministic_algorithms_enabled=lambda: True,
    use_deterministic_algorithms=_no_effect("torch.use_deterministic_algorithms"),
    set_num_threads=_no_effect("torch.set_num_threads"),
    get_device_module=lambda name=None: module_of_device,
)
module_of_device = module("torch.cpu", is_available=lambda: True, device_count=lambda: 1, synchronize=lambda *a: None, _initialized=False)


def _nothing_there(name):
    return module(name, is_available=lambda: False, device_count=lambda: 0, is_initialized=lambda: False, is_built=lambda: False,
                  synchronize=lambda *args: None, empty_cache=lambda: None, manual_seed_all=lambda seed: None, _initialized=False)


for _name in ("torch.cuda", "torch.xpu", "torch.mps", "torch.backends.cuda", "torch.backends.mps", "torch.backends.mkldnn", "torch.backends.cudnn"):
    _nothing_there(_name)

module("torch.backends")
module("torch.utils", [grapnel.utils])
module("torch.utils.hooks", [grapnel.utils.hooks])
module("torch.utils.checkpoint", [grapnel.utils.checkpoint])
module("torch.autograd", [grapnel.autograd], {"Node", "hooks_of", "will_fire"})
module("torch.autograd.graph", [grapnel.autograd.graph], {"hooks_of", "will_fire"})
if hasattr(grapnel.autograd, "function"):
    module("torch.autograd.function", [grapnel.autograd.function])
module("torch.autograd.profiler")
module("torch.autograd.grad_mode", [grapnel])
module("torch.autograd.anomaly_mode", [grapnel.autograd])
module("torch.autograd.variable", [grapnel.autograd])


from grapnel.compat.torch import _dynamo, _nn, _testing  # noqa: E402, F401
from grapnel.compat.torch import _distributed, _graph, _small, _trees  # noqa: E402, F401

# What Grapnel's types do otherwise while the names are installed.
CHANGES = [
    (_core.dtype, "__repr__", lambda self: f"torch.{self.name}"),
    (_core.dtype, "__str__", lambda self: f"torch.{self.name}"),
    (grapnel.Size, "__repr__", lambda self: f"torch.Size({list(self)})"),
    *_dynamo.CHANGES,
    *_nn.CHANGES,
    *_distributed.CHANGES,
]
