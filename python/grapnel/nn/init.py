"""Initialising parameters in place. Each function returns its tensor and is not recorded. What is here comes from grapnel/nn/init.h."""
from grapnel._core._init import *  # noqa: F401,F403
from grapnel._core._init import fans_of as _fans_of


def _calculate_fan_in_and_fan_out(tensor):
    """Inputs and outputs of one unit of a weight, under PyTorch's name."""
    return _fans_of(tensor)
