"""Tensors as text, in the form that PyTorch users know and can paste back."""
import math

from grapnel import _core
from grapnel._core import Tensor


class _Options:
    precision = 4
    threshold = 1000
    edgeitems = 3
    linewidth = 80


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None):
    """How many digits, elements, elements at the edges, and letters in a line are printed."""
    for name, value in dict(precision=precision, threshold=threshold, edgeitems=edgeitems, linewidth=linewidth).items():
        if value is not None:
            setattr(_Options, name, value)


class _Formatter:
    """How the numbers of one tensor are written: all with the same width."""

    def __init__(self, numbers, floating):
        self.floating = floating
        self.scientific = False
        self.whole = False
        finite = [abs(n) for n in numbers if math.isfinite(n)] if floating else []
        if floating:
            self.whole = all(n == math.floor(n) for n in finite)
            nonzero = [n for n in finite if n]
            if nonzero:
                high, low = max(nonzero), min(nonzero)
                limit = high / low > 1000 or high > 1e8
                self.scientific = limit if self.whole else (limit or low < 1e-4)
                if self.whole and not high > 1e8:
                    self.scientific = high / low > 1000
        self.width = max((len(self.one(n)) for n in numbers), default=0)

    def one(self, number):
        if not self.floating:
            return str(number)
        if not math.isfinite(number):
            return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
        if self.scientific:
            return f"{number:.{_Options.precision}e}"
        if self.whole:
            return f"{number:.0f}."
        return f"{number:.{_Options.precision}f}"

    def __call__(self, number):
        return self.one(number).rjust(self.width)


def _shortened(values, dims):
    """Nested lists with the elements that are printed; None where some are left out."""
    if dims == 0:
        return values
    edge = _Options.edgeitems
    if len(values) > 2 * edge:
        return [_shortened(v, dims - 1) for v in values[:edge]] + [None] + [_shortened(v, dims - 1) for v in values[-edge:]]
    return [_shortened(v, dims - 1) for v in values]


def _numbers(values):
    if isinstance(values, list):
        for value in values:
            yield from _numbers(value)
    elif values is not None:
        yield values


def _text(values, write, indent):
    if not isinstance(values, list):
        return write(values)
    if not any(isinstance(v, list) for v in values):
        words = ["..." if v is None else write(v) for v in values]
        per_line = max(1, (_Options.linewidth - indent) // (max(map(len, words), default=1) + 2))
        lines = [", ".join(words[i:i + per_line]) for i in range(0, len(words), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = ["..." if v is None else _text(v, write, indent + 1) for v in values]
    depth = _depth(values)
    return "[" + ("," + "\n" * (depth - 1) + " " * (indent + 1)).join(rows) + "]"


def _depth(values):
    inner = next((v for v in values if isinstance(v, list)), None)
    return 1 + (_depth(inner) if inner is not None else 0)


def _edges(t):
    """The part of a long tensor that is printed, and a bit for whether anything is left out."""
    edge = _Options.edgeitems
    for dim in range(t.dim()):
        if t.size(dim) > 2 * edge:
            t = _core.cat([t.narrow(dim, 0, edge + 1), t.narrow(dim, t.size(dim) - edge, edge)], dim)
    return t


def _shown(values):
    """The elements that are printed, and how one is written."""
    shown = values._tolist("str") if values.numel() <= _Options.threshold else _shortened(_edges(values)._tolist("str"), values.dim())
    return shown, _Formatter(list(_numbers(shown)), values.dtype.is_floating_point)


def elements_as_text(tensor):
    """The same as nested lists of texts; what is left out is "..."."""
    shown, write = _shown(tensor.detach())

    def written(values):
        return [written(v) for v in values] if isinstance(values, list) else "..." if values is None else write(values)

    return written(shown)


def _repr(self, *, tensor_contents=None):
    notes = []
    default = self.dtype in (_core.get_default_dtype(), _core.dtype.int64, _core.dtype.bool)
    with_history = self.grad_fn
    values = self.detach()
    if self.numel() == 0:
        text = "[]"
        if self.dim() != 1:
            notes.append(f"size={tuple(self.shape)}")
        default = self.dtype is _core.get_default_dtype()
    else:
        shown, write = _shown(values)
        text = _text(shown, write, len("tensor("))
    if not default:
        notes.append(f"dtype={self.dtype}")
    if with_history is not None:
        notes.append(f"grad_fn=<{with_history.name()}>")
    elif self.requires_grad:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([text, *notes])})"


def _format(self, spec):
    return format(self.item(), spec) if self.dim() == 0 and spec else str(self)


Tensor.__repr__ = Tensor.__str__ = _repr
Tensor.__format__ = _format
