"""What PyTorch keeps under nn.modules."""
from grapnel.nn.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential  # noqa: F401
from grapnel.nn.module import Module  # noqa: F401
from grapnel.nn.modules import module  # noqa: F401
