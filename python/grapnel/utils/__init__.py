"""What PyTorch keeps under utils."""
from grapnel.utils import checkpoint, data, hooks, tensorboard  # noqa: F401
