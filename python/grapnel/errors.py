"""What the library raises. Each kind of `Error` is the built-in exception of its name, too, so `except IndexError` catches both."""
from grapnel._core import _Error as Error
from grapnel._core import _GraphBreak as GraphBreak
from grapnel._core import _IndexError as IndexError
from grapnel._core import _InternalError as InternalError
from grapnel._core import _TypeError as TypeError
from grapnel._core import _ValueError as ValueError

__all__ = ["Error", "GraphBreak", "IndexError", "InternalError", "TypeError", "ValueError"]
