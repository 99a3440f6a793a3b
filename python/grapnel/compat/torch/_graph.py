"""Graphs as PyTorch shows them: a face of Grapnel's Graph that can be called, and printed in the style of FX."""
import inspect
import re

import grapnel
from grapnel.compat._missing import NotOffered, ignore, module

# Ops that PyTorch calls otherwise: our name -> (the name of the result, the function).
_TARGETS = {"invoke": ("trace_wrapped", "torch__dynamo__trace_wrapped_higher_order_op_self_invoke")}
_KINDS = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "bool": "b8"}


def _type_of(value):
    """Type and size as FX writes them: f32[2, 3]."""
    kind, bits = re.fullmatch(r"([a-z]+)(\d*)", value.dtype.name).groups()
    return f"{_KINDS[kind]}{bits}[{', '.join(map(str, value.shape))}]"


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
        return self._graph.instructions

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
        graph, names, taken = self._graph, {}, {}

        def named(old, wish):
            count = taken[wish] = taken.get(wish, -1) + 1
            names[old] = wish if count == 0 else f"{wish}_{count}"
            return names[old]

        def note(old):
            return f': "{_type_of(graph.values[old])}"' if typed and old in graph.values else ""

        def shown(old):
            return names[old] if isinstance(old, str) else repr(old)

        given = [named(old, wish) for old, wish in zip(graph.inputs, self._inputs or [f"arg{i}_1" for i in range(len(graph.inputs))])]
        arguments = "".join(f", {name}{note(old) or ' : torch.Tensor'}" for name, old in zip(given, graph.inputs))
        lines = [f"def forward(self{arguments}):"]
        made = {out for step in graph.instructions for out in step.outputs}
        for i, old in enumerate(old for old in graph.values if old not in names and old not in made):
            name = named(old, f"constant_{i}")
            lines.append(f"    {name}{note(old)} = self.{name}")
        last_use = {old: at for at, step in enumerate(graph.instructions) for old in step.inputs if isinstance(old, str)}
        last_use.update((out, len(graph.instructions)) for out in graph.outputs)
        for at, step in enumerate(graph.instructions):
            op = step.op + "_" * step.inplace
            wish, target = _TARGETS.get(op, (op, f"torch.{op}"))
            call = f"{target}({', '.join([*map(shown, step.inputs), *(f'{key} = {value!r}' for key, value in step.attributes.items())])})"
            dying = list(dict.fromkeys(names[old] for old in step.inputs if last_use.get(old) == at))
            end = f";  {' = '.join(dying)} = None" if dying else ""
            if len(step.outputs) == 1:
                lines.append(f"    {named(step.outputs[0], wish)}{note(step.outputs[0])} = {call}{end}")
                continue
            whole = named(None, wish)
            lines.append(f"    {whole} = {call}{end}")
            for i, out in enumerate(step.outputs):
                lines.append(f"    {named(out, 'getitem')}{note(out)} = {whole}[{i}]")
        results = [shown(old) for old in graph.outputs]
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
