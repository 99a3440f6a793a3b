"""`torch.nn`: Grapnel's modules."""
import grapnel
from grapnel.compat._missing import module, modules
from grapnel.compat.torch import _nn_hooks

nn = grapnel.nn
_to = nn.Module.to


def to(self, *args, **kwargs):
    """Module.to, where a number is a rank shown as a device: the module is there already."""
    return _to(self, *[a for a in args if isinstance(a, bool) or not isinstance(a, int)], **kwargs)


module("torch.nn", [nn])
module("torch.nn.functional", [getattr(nn, "functional", nn), grapnel])
for _name in ("init", "utils"):
    if hasattr(nn, _name):
        module(f"torch.nn.{_name}", [getattr(nn, _name)])
module("torch.nn.modules", [nn.modules])
module("torch.nn.modules.module", [nn.modules.module], **_nn_hooks.FUNCTIONS)
modules["torch.nn.modules.module"].__class__ = _nn_hooks.GlobalHooks
module("torch.nn.parameter", [nn.parameter])
module("torch.nn.parallel")
module("torch.optim", [grapnel.optim])
module("torch.optim.lr_scheduler", [getattr(grapnel.optim, "lr_scheduler", grapnel.optim)])

CHANGES = [*_nn_hooks.CHANGES, (nn.Module, "to", to)]
