"""What a model is made of, as a table."""
import collections

from grapnel import _core

Row = collections.namedtuple("Row", ["path", "layer", "depth", "parameters"])


class Summary(collections.namedtuple("Summary", ["rows", "parameters", "trainable", "buffers", "bytes"])):
    """Layers with their numbers of parameters; printed, it is a table."""

    def __str__(self):
        return self._text

    __repr__ = __str__


def summary(module):
    """The layers of a model, and how many parameters each has."""
    rows, *totals, text = _core._train._summary(module)
    out = Summary([Row(*row) for row in rows], *totals)
    out._text = text
    return out
