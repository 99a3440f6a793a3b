"""Datasets and loaders, under PyTorch's name of the module."""
from grapnel.data import *  # noqa: F401,F403
