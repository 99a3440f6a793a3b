"""What notebooks show of tensors, modules and graphs, and texts of small things."""
from grapnel import _core
from grapnel._core import Graph, Tensor
from grapnel._printing import elements_as_text
from grapnel.nn.module import Module

_CELL = "style='text-align:right;padding:0 .6em'"


def _text(value):
    text = str(value)
    for letter, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#x27")):
        text = text.replace(letter, f"&{name};")
    return text


def _tensor(self):
    """A table for a vector or a matrix, text for others, and above it what the tensor is."""
    facts = [f"{list(self.shape)}", self.dtype.name]
    if self.grad_fn is not None:
        facts.append(f"grad_fn={self.grad_fn.name()}")
    elif self.requires_grad:
        facts.append("requires grad")
    caption = f"{type(self).__name__} {', '.join(facts)}"
    if self.numel() == 0 or self.dim() not in (1, 2):
        return f"<div>{_text(caption)}<pre>{_text(repr(self))}</pre></div>"
    rows = elements_as_text(self)
    rows = [rows] if self.dim() == 1 else rows
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{_text(x)}</td>" for x in row) + "</tr>" if isinstance(row, list) else "<tr><td>...</td></tr>" for row in rows)
    return f"<div>{_text(caption)}<table>{body}</table></div>"


def _count(module):
    seen = {p for p in module.parameters()}
    return sum(p.numel() for p in seen)


def _module(self, name=""):
    """The tree of modules, each with its number of parameters, to be opened and closed."""
    extra = self.extra_repr()
    line = f"{_text(name and name + ': ')}<b>{_text(self._get_name())}</b>" + (f" <code>{_text(extra)}</code>" if extra else "")
    count = _count(self)
    line += f" <small>{count:,} parameters</small>" if count else ""
    children = _core._members(self, "modules")
    if not children:
        return f"<div style='margin-left:1.2em'>{line}</div>"
    inside = "".join(_module(child, path) for path, child in children)
    return f"<details open style='margin-left:1.2em'><summary>{line}</summary>{inside}</details>"


def _graph(self):
    """A row for each call: what it makes, of what, and the line that asked for it."""
    rows = []
    for call in self.instructions:
        attributes = ", ".join(f"{name}={value}" for name, value in call.attributes.items())
        inside = ", ".join(str(x) for x in call.inputs) + (f" | {attributes}" if attributes else "")
        made = ", ".join(map(str, call.outputs)) or "in place"
        rows.append(f"<tr><td {_CELL}><code>{_text(made)}</code></td><td><b>{_text(call.op)}</b></td><td><code>{_text(inside)}</code></td>"
                    f"<td><small>{_text(call.site)}</small></td></tr>")
    head = f"inputs {', '.join(map(str, self.inputs))}; outputs {', '.join(map(str, self.outputs))}"
    return f"<div>Graph: {len(rows)} calls, {_text(head)}<table>{''.join(rows)}</table></div>"


_core.Generator.__repr__ = lambda self: f"<Generator, seed {self.initial_seed()}>"
_core.Lifted.__repr__ = lambda self: f"Lifted({self.value})"
Tensor._repr_html_ = _tensor
Module._repr_html_ = lambda self: _module(self)
Graph._repr_html_ = _graph
