"""Grapnel: automatic differentiation and training whose hooks compile.

Names follow PyTorch's. `Tensor`, the functions on tensors and their documentation come from the C++ library; what stands in this package is
Python's side of it.
"""
import os as _os

from grapnel import _core
from grapnel._core import *  # noqa: F403
from grapnel._core import Tensor, device, dtype  # noqa: F401
from grapnel.errors import Error, GraphBreak, InternalError  # noqa: F401
from grapnel._values import Size, bfloat16, float16, float32, float64, int32, int64, uint8  # noqa: F401
from grapnel._values import bool, byte, double, float, half, int, long  # noqa: F401
from grapnel._printing import set_printoptions  # noqa: F401
from grapnel._modes import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from grapnel._files import from_dlpack, load, save  # noqa: F401
from grapnel import autograd, data, dist, hooks, nn, optim, train, utils  # noqa: F401
from grapnel import amp  # noqa: F401
from grapnel.train import autocast  # noqa: F401
from grapnel import _html  # noqa: F401
from grapnel._compile import CompiledBackward, compile, cond, declared, invoke, opaque, trace  # noqa: F401

# Lines in messages are those of the user's.
_core._set_package(_os.path.dirname(__file__) + _os.sep)
