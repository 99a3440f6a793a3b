"""TensorBoard's files, under PyTorch's name of the module."""
from grapnel.train import SummaryWriter  # noqa: F401
