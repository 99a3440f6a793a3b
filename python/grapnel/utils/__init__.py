"""What PyTorch keeps under utils."""
from grapnel.utils import checkpoint, hooks  # noqa: F401
