"""Mixed precision, under PyTorch's name of the module."""
from grapnel.train import GradScaler, autocast  # noqa: F401
