"""Handles of hooks."""
from grapnel._core import RemovableHandle  # noqa: F401
