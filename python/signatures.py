"""Signatures as stubs write them: what ops.pyi, types/, nanobind, Python and the names of arguments say. stubs.py puts them together."""
import ast
import contextlib
import inspect
import re
import textwrap

# Types of arguments that functions in Python do not annotate, by name. One whose default is None may be None.
ARGUMENTS = {
    "Any": ["arg", "args", "state", "value"],
    "Tensor": ["input", "tensor", "weight", "x1", "x2", "grad"],
    "Sequence[Tensor]": ["tensors"],
    "Module": ["module"],
    "Optimizer": ["optimizer"],
    "Callable[..., Any]": ["hook", "fn", "function", "func", "true_fn", "false_fn", "pack_hook", "unpack_hook", "collate_fn"],
    "Callable[[], Any]": ["closure"],
    "str": ["name", "prefix", "reduction", "padding_mode", "approximate", "error_message"],
    "bool": ["strict", "assign", "recurse", "inplace", "training", "shuffle"],
    "str | PathLike[str]": ["path"],
    "DTypeLike": ["dtype", "dst_type"],
    "device | str": ["device"],
    "Generator": ["generator"],
    "float": ["lr", "momentum", "dampening", "weight_decay", "eps", "p", "factor", "gamma"],
    "tuple[float, float]": ["betas"],
    "int | Sequence[int]": ["kernel_size", "stride", "dilation", "normalized_shape", "output_size"],
    "int | str | Sequence[int]": ["padding"],
    "int": ["dim", "in_features", "out_features", "in_channels", "out_channels", "groups", "num_embeddings", "embedding_dim", "padding_idx", "num_features",
            "num_groups", "num_channels", "embed_dim", "num_heads", "kdim", "vdim", "d_model", "nhead", "dim_feedforward", "input_size", "hidden_size",
            "num_layers", "proj_size", "num_parameters", "ignore_index", "start_dim", "end_dim", "batch_size", "num_workers", "num_samples",
            "last_epoch", "epoch", "step_size", "max_iter", "history_size", "total_iters", "total_steps", "count", "seed", "rank", "num_replicas"],
    "Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]": ["params"],
}
ARGUMENT = {name: annotation for annotation, names in ARGUMENTS.items() for name in names}
RESULTS = {"__len__": "int", "__repr__": "str", "__str__": "str", "__contains__": "bool", "__hash__": "int", "__eq__": "bool", "__bool__": "bool",
           "__iter__": "Iterator[Any]", "__exit__": "None", "extra_repr": "str", "state_dict": "dict[str, Any]",
           "__copy__": "Self", "__deepcopy__": "Self"}


class Written:
    """One file of types/: declarations by the names of what they are about."""

    def __init__(self, path):
        self.path, self.found, self.bases, self.used = path, {}, {}, set()
        self.header = []
        self._read(ast.parse(path.read_text()).body if path.exists() else [], "")

    def _read(self, body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef):
                self.bases[prefix + node.name] = node.bases
                self.found.setdefault(prefix + node.name, [])
                self._read(node.body, prefix + node.name + ".")
            elif isinstance(node, ast.FunctionDef):
                self.found.setdefault(prefix + node.name, []).append(node)
            elif isinstance(node, ast.AnnAssign) and node.value is None:
                self.found.setdefault(prefix + node.target.id, []).append(node)
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                self.header.append(node)

    def take(self, name):
        self.used.add(name)
        return self.found.get(name, [])

    def check(self):
        unknown = sorted(set(self.found) - self.used)
        if unknown:
            raise SystemExit(f"{self.path}: there is no {', '.join(unknown)} in the package.")


class Bound:
    """The signatures that generate.py made: functions of _core, and under class X methods of _core.X or functions of the module _core.X."""

    def __init__(self, path):
        self._parts = {}
        for node in ast.parse(path.read_text()).body:
            part, functions = (node.name, node.body) if isinstance(node, ast.ClassDef) else ("", [node])
            for function in functions:
                same = self._parts.setdefault(part, {}).setdefault(function.name, [])
                if ast.dump(function) not in map(ast.dump, same):
                    same.append(function)

    def find(self, part, name):
        return self._parts.get(part, {}).get(name)


def parse_function(text):
    return ast.parse(textwrap.dedent(text)).body[0]


def is_nanobind(value):
    return type(value).__module__ == "nanobind" and hasattr(value, "__nb_signature__")


def is_function(value):
    return inspect.isroutine(value) or is_nanobind(value)


def fixed(node):
    """A function node in which everything has a type."""
    arguments = node.args
    everything = arguments.posonlyargs + arguments.args + arguments.kwonlyargs + [a for a in (arguments.vararg, arguments.kwarg) if a]
    for i, argument in enumerate(everything):
        if argument.annotation is None and not (i == 0 and argument.arg in ("self", "cls")):
            argument.annotation = ast.Name("Any")
    if node.returns is None:
        node.returns = ast.Name("Any")
    return node


class FromNanobind(ast.NodeTransformer):
    """Types as nanobind writes them."""

    VAGUE = {"object": "Any", "list": "list[Any]", "tuple": "tuple[Any, ...]", "dict": "dict[str, Any]", "dtype": "DTypeLike"}

    def visit_Attribute(self, node):
        return ast.Name(node.attr) if ast.unparse(node).startswith("grapnel.") else node

    def visit_Name(self, node):
        if node.id == "_Anything":
            return ast.Name("object")
        return ast.parse(self.VAGUE.get(node.id, node.id), mode="eval").body

    def visit_BinOp(self, node):
        parts, seen = [], []
        for part in ast.unparse(self.generic_visit(node)).split(" | "):
            if part not in parts:
                parts.append(part)
        seen = ["Any"] if "Any" in parts else parts
        return ast.parse(" | ".join(seen), mode="eval").body


def from_nanobind(function, name):
    out = []
    for text, doc, defaults in function.__nb_signature__:
        def default(match, defaults=defaults):
            value = defaults[int(match[1])]
            return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else "..."

        text = re.sub(r"\\=?(\d+)", default, text)
        if name in ("__eq__", "__ne__"):
            text = re.sub(r"arg: [\w.]+", "arg: _Anything", text)
        text = re.sub(r"def \w*\(", f"def {name}(", text, count=1)
        node = parse_function(text + ": ...")
        returns = node.returns
        node = FromNanobind().visit(node)
        if isinstance(returns, ast.Name) and returns.id == "dtype":
            node.returns = returns
        if doc:
            node.body = [ast.Expr(ast.Constant(doc))]
        out.append(fixed(node))
    return out


def literal(value):
    simple = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if simple or (isinstance(value, tuple) and all(isinstance(v, (int, float)) for v in value)) else "..."


def argument_type(name, default):
    annotation = ARGUMENT.get(name)
    if annotation is None:
        annotation = {bool: "bool", str: "str", int: "float", float: "float"}.get(type(default), "Any")
    elif isinstance(default, bool):
        annotation = "bool"
    elif isinstance(default, str) and "str" not in annotation:
        annotation += " | str"
    elif isinstance(default, float) and annotation == "int":
        annotation = "float"
    return annotation + " | None" if default is None and annotation != "Any" else annotation


def source_of(value):
    with contextlib.suppress(OSError, TypeError, SyntaxError, IndentationError):
        node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
        return node if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else None
    return None


def own_nodes(function):
    """The nodes of a function without those of functions inside of it."""
    todo = list(function.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(node))


def result_type(name, function):
    if name in RESULTS:
        return RESULTS[name]
    if inspect.isgeneratorfunction(inspect.unwrap(function)):
        return "AbstractContextManager[Any]" if hasattr(function, "__wrapped__") else "Iterator[Any]"
    node = source_of(function)
    if not isinstance(node, ast.FunctionDef):
        return "Any"
    values = [n.value for n in own_nodes(node) if isinstance(n, ast.Return) and n.value is not None]
    if not values:
        return "Any" if isinstance(node.body[-1], ast.Raise) else "None"
    if re.fullmatch(r"register_\w+_hook", name):
        return "RemovableHandle"
    return "Self" if all(isinstance(v, ast.Name) and v.id == "self" for v in values) else "Any"


def signature_text(signature, argument_type=argument_type):
    """Arguments of a signature of Python's, all of them with types."""
    parts, kinds = [], inspect.Parameter
    star = slash = False
    for i, p in enumerate(signature.parameters.values()):
        if slash and p.kind is not kinds.POSITIONAL_ONLY:
            parts.append("/")
        slash = p.kind is kinds.POSITIONAL_ONLY
        if p.kind is kinds.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or p.kind in (kinds.VAR_POSITIONAL, kinds.KEYWORD_ONLY)
        prefix = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
        if i == 0 and p.name in ("self", "cls"):
            parts.append(p.name)
            continue
        if isinstance(p.annotation, str):
            annotation = p.annotation
        elif p.annotation is not kinds.empty:
            annotation = inspect.formatannotation(p.annotation)
        else:
            annotation = "Any" if prefix else argument_type(p.name, p.default)
        parts.append(f"{prefix}{p.name}: {annotation}" + ("" if p.default is kinds.empty else f" = {literal(p.default)}"))
    return ", ".join(parts + (["/"] if slash else []))


def input_type(name, default):
    """Of an argument of a layer's forward."""
    if default is None and name != "hx":
        return "Tensor | None"
    return "Tensor" if default is inspect.Parameter.empty else argument_type(name, default)


def from_python(function, name):
    """A function that is written in Python, or one in C of which nothing is known."""
    try:
        signature = inspect.signature(function, follow_wrapped=True)
    except (ValueError, TypeError):
        return [parse_function(f"def {name}(*args: Any, **kwargs: Any) -> Any: ...")]
    returns = signature.return_annotation
    if isinstance(returns, str):
        result = returns
    elif returns is not inspect.Signature.empty:
        result = inspect.formatannotation(returns)
    else:
        result = result_type(name, function) if inspect.isfunction(function) else "Any"
    return [parse_function(f"def {name}({signature_text(signature)}) -> {result}: ...")]


def merged(written, function, where):
    """A function of Python's with the types that are written for it: its own arguments and defaults, so only types can be out of date."""
    if len(written) != 1 or not inspect.isfunction(function) or not isinstance(written[0], ast.FunctionDef) or written[0].args.vararg:
        return written
    if written[0].name.startswith("__"):
        return written
    node = from_python(function, written[0].name)[0]
    types = {a.arg: a.annotation for a in written[0].args.posonlyargs + written[0].args.args + written[0].args.kwonlyargs}
    for argument in node.args.posonlyargs + node.args.args + node.args.kwonlyargs:
        argument.annotation = types.pop(argument.arg, argument.annotation)
    if types:
        raise SystemExit(f"python/types: {where} has no argument {', '.join(types)}.")
    node.returns = written[0].returns
    return [node]


def doc_of(value):
    """What a function, property or class says of itself, and not what Python says of all of them."""
    own = getattr(value, "__doc__", None)
    if not isinstance(own, str) or isinstance(value, (type(object.__init__), type("".join))) or (inspect.isbuiltin(value) and not own):
        return None
    return inspect.cleandoc(own)


def with_doc(nodes, doc):
    """The documentation in the last of several overloads, where it is not in one already."""
    if doc and not any(isinstance(n, ast.FunctionDef) and ast.get_docstring(n) for n in nodes):
        last = nodes[-1]
        if isinstance(last, ast.FunctionDef):
            last.body = [ast.Expr(ast.Constant(doc))]
    return nodes


def overloaded(nodes):
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef)]
    if len(functions) > 1 and not any("setter" in ast.unparse(d) for n in functions for d in n.decorator_list):
        for n in functions:
            if not any(ast.unparse(d) == "overload" for d in n.decorator_list):
                n.decorator_list.insert(0, ast.Name("overload"))
    return nodes
