"""PyTorch's names over Grapnel, so that its own tests of hooks can run here.

`install()` makes `import torch` mean `grapnel.compat.torch` in this process; `python -m grapnel.compat.run FILE...` runs test files with it.
Names and words are translated, numbers never: graphs are counted as Grapnel counts them. `ignored()` lists what was accepted although it means
nothing here. To write programs, `import grapnel` is enough.
"""
from grapnel.compat._missing import NotOffered, ignored  # noqa: F401

_end = []


def install():
    """From now on `import torch` gives PyTorch's names over Grapnel in this process."""
    from grapnel.compat import _missing, torch

    if not _end:
        _end.append(_missing.install(torch.CHANGES))


def uninstall():
    """Ends what install() began. Modules that were imported meanwhile keep what they have."""
    if _end:
        _end.pop()()
