"""Layers, containers, and what belongs to them."""
from grapnel.nn.parameter import Buffer, Parameter  # noqa: F401
from grapnel.nn.module import Module  # noqa: F401
from grapnel.nn.layers import CLASSES as _CLASSES
from grapnel.nn.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential  # noqa: F401
from grapnel.nn import functional, init, modules, parameter, utils  # noqa: F401

from grapnel.nn._summary import summary  # noqa: F401

globals().update(_CLASSES)
