"""The function's own result."""
_R = TypeVar("_R")

def checkpoint(function: Callable[..., _R], *args: Any, use_reentrant: bool = False, hooks_again: bool = False, **kwargs: Any) -> _R: ...
