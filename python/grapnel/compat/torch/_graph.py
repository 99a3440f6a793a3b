"""Graphs as PyTorch shows them: a face of Grapnel's Graph that can be called, and printed in the style of FX."""
import inspect
import re

import grapnel
from grapnel.compat._missing import NotOffered, ignore, module

# Ops that PyTorch calls otherwise: our name -> (the name of the result, the function).
_TARGETS = {"invoke": ("trace_wrapped", "torch__dynamo__trace_wrapped_higher_order_op_self_invoke")}
_LINE = re.compile(r"^  (?:(?P<outs>[^=()]+) = )?(?P<op>\w+)\((?P<args>.*)\)(?: : (?P<types>.*?))?(?:  # .*)?$")
_HEAD = re.compile(r"(\w+): (\w+\[[\d,]*\])")


class Instruction:
    """One line of a graph."""

    def __init__(self, op, args, outs, types):
        self.op, self.args, self.outs, self.types = op, args, outs, types


def _split(text):
    """At commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "[("
        depth -= c in "])"
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


class _Read:
    """What the text of a graph says."""

    def __init__(self, text):
        head, *lines = text.splitlines()
        self.inputs = _HEAD.findall(head)
        self.types = dict(self.inputs)
        self.constants, self.instructions, self.outputs = [], [], []
        for line in lines:
            if kept := re.match(r"^  (\w+) = (?:constant|empty) : (.*)$", line):
                self.constants.append((kept[1], kept[2]))
                self.types[kept[1]] = kept[2]
            elif line.startswith("  return"):
                self.outputs = _split(line[len("  return"):])
            elif found := _LINE.match(line):
                outs, types = _split(found["outs"] or ""), _split(found["types"] or "")
                self.types.update(zip(outs, types))
                self.instructions.append(Instruction(found["op"], _split(found["args"]), outs, types))


class GraphModule:
    """A graph of Grapnel's under the names of torch.fx.GraphModule."""

    def __init__(self, graph, name="GraphModule", inputs=None, single=False):
        self._graph, self._name, self._inputs, self._single = graph, name, inputs, single
        self.__name__ = name

    def __call__(self, *inputs):
        out = self._graph.run(*inputs)
        return out if self._single or isinstance(out, tuple) else (out,)

    def forward(self, *inputs):
        return self(*inputs)

    def instructions(self):
        """What stands between the inputs and the results."""
        return _Read(self._graph.str()).instructions

    def print_readable(self, print_output=True, include_stride=False, include_device=False, colored=False):
        """The graph as a class, every result with its type."""
        text = f"class {self._name}(torch.nn.Module):\n" + _indented(self._written(typed=True), "    ")
        if print_output:
            print(text)
        return text

    @property
    def code(self):
        return "\n\n\n" + self._written(typed=False)

    def _written(self, typed):
        read = _Read(self._graph.str())
        names, taken = {}, {}

        def named(old, wish):
            count = taken[wish] = taken.get(wish, -1) + 1
            names[old] = wish if count == 0 else f"{wish}_{count}"
            return names[old]

        def note(type_):
            return f': "{type_}"' if typed else ""

        given = [named(old, wish) for (old, _), wish in zip(read.inputs, self._inputs or [f"arg{i}_1" for i in range(len(read.inputs))])]
        arguments = "".join(f", {name}{note(type_) or ' : torch.Tensor'}" for name, (_, type_) in zip(given, read.inputs))
        lines = [f"def forward(self{arguments}):"]
        for i, (old, type_) in enumerate(read.constants):
            name = named(old, f"constant_{i}")
            lines.append(f"    {name}{note(type_)} = self.{name}")
        last_use = {}
        for at, step in enumerate(read.instructions):
            for arg in step.args:
                last_use[arg] = at
        for out in read.outputs:
            last_use[out] = len(read.instructions)
        for at, step in enumerate(read.instructions):
            wish, target = _TARGETS.get(step.op, (step.op, f"torch.{step.op}"))
            call = f"{target}({', '.join(names.get(a, a) for a in step.args)})"
            dying = list(dict.fromkeys(names[a] for a in step.args if a in names and last_use[a] == at))
            end = f";  {' = '.join(dying)} = None" if dying else ""
            if len(step.outs) == 1:
                lines.append(f"    {named(step.outs[0], wish)}{note(step.types[0])} = {call}{end}")
            else:
                whole = named("", wish)
                lines.append(f"    {whole} = {call}{end}")
                for i, (out, type_) in enumerate(zip(step.outs, step.types)):
                    lines.append(f"    {named(out, 'getitem')}{note(type_)} = {whole}[{i}]")
        results = [names.get(o, o) for o in read.outputs]
        lines.append(f"    return {results[0]}" if self._single else f"    return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        return "\n".join(lines) + "\n"

    def __repr__(self):
        return f"{self._name}()\n{self.code}"


def _indented(text, by):
    return "".join(by + line + "\n" if line else "\n" for line in text.splitlines())


def normalize_gm(text):
    """A printed graph without comments and without lines of blanks at its ends."""
    lines = [line.rstrip() for line in text.splitlines() if not line.strip().startswith("#")]
    return "\n".join(lines).strip("\n") + "\n"


def make_fx(function, *args, **kwargs):
    """What a function of tensors computes, as a graph that can be called."""
    if args or kwargs:
        ignore("torch.fx.experimental.proxy_tensor.make_fx(...)")

    def traced(*inputs):
        single = []

        def run(*given):
            out = function(*given)
            single.append(isinstance(out, grapnel.Tensor))
            return out

        graph = grapnel.trace(run, *inputs)
        names = [f"{name}_1" for name in inspect.signature(function).parameters][:len(inputs)]
        return GraphModule(graph, function.__name__, names if len(names) == len(inputs) else None, single[-1])

    return traced


def trace_wrapped(*args, **kwargs):
    """fn(*args, **kwargs) as one step that a trace does not look into."""
    fn = kwargs.pop("fn")
    return grapnel.invoke(lambda *tensors: fn(*tensors, **kwargs), *args) if kwargs else grapnel.invoke(fn, *args)


def aot_module_simplified(mod, args, fw_compiler=None, bw_compiler=None, **ignored_here):
    """The module, recorded with its passes; only the compiler that does nothing is offered."""
    for compiler in (fw_compiler, bw_compiler):
        if compiler not in (None, nop):
            raise NotOffered("torch._functorch.aot_autograd.aot_module_simplified with a compiler other than nop")
    return grapnel.compile(mod, backend="aot_eager")


def nop(fx_g, inputs=None):
    """The compiler that leaves a graph as it is."""
    return fx_g


module("torch.fx", GraphModule=GraphModule)
module("torch.fx.experimental")
module("torch.fx.experimental.proxy_tensor", make_fx=make_fx)
module("torch._dynamo._trace_wrapped_higher_order_op", trace_wrapped=trace_wrapped)
module("torch._functorch.aot_autograd", aot_module_simplified=aot_module_simplified, AOT_COUNTER=None)
module("torch._higher_order_ops")
module("torch._higher_order_ops.cond", cond=lambda pred, true_fn, false_fn, operands=(): grapnel.cond(pred, true_fn, false_fn, list(operands)))
module("functorch")
module("functorch.compile", nop=nop)
module("functorch.experimental")
