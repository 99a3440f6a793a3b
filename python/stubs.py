#!/usr/bin/env python3
"""Writes what type checkers read of the package: a stub for every module of it, with its documentation.

    stubs.py PACKAGE_FOLDER OPS_PYI OUTPUT_FOLDER

PACKAGE_FOLDER holds the built package. What a stub says comes from, in this order:
- ops.pyi, which generate.py made of the headers, for the functions and methods that it bound;
- types/, where types are written that cannot be found out: every entry of it must be about something that is there, but need not name all arguments;
- what nanobind says of the signature of a function in C++;
- a function's own annotations, its defaults, and the names of its arguments.
What is still unknown is Any. Nothing public is left out, so a new function needs nothing here.
"""
import ast
import enum
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
import textwrap

from signatures import (Bound, Written, argument_type, doc_of, from_nanobind, from_python, input_type, is_function, is_nanobind, merged, overloaded,
                        own_nodes, parse_function, signature_text, source_of, with_doc)

TYPES = pathlib.Path(__file__).resolve().parent / "types"
LEFT_OUT = {"grapnel.compat"}  # which runs other people's files
# Where the names in annotations come from, besides the classes of the package.
KNOWN = {
    "typing": ["Any", "Generic", "Literal", "NamedTuple", "ParamSpec", "Protocol", "Self", "SupportsIndex", "TypeAlias", "TypeVar", "overload"],
    "collections.abc": ["Callable", "Iterable", "Iterator", "Mapping", "MutableMapping", "Sequence"],
    "contextlib": ["AbstractContextManager"],
    "enum": ["Enum"],
    "os": ["PathLike"],
    "grapnel._core": ["DTypeLike"],
}
HOME_OF = {name: module for module, names in KNOWN.items() for name in names}
# Bases from elsewhere that want to know what is inside of them.
GENERIC = {"MutableMapping": "MutableMapping[str, Any]", "Mapping": "Mapping[Any, Any]", "tuple": "tuple[Any, ...]", "OrderedDict": "dict[Any, Any]",
           "dict": "dict[Any, Any]", "list": "list[Any]", "set": "set[Any]"}
# Layers that give more than a tensor.
GIVE_PAIRS = {"GRU", "LSTM", "LSTMCell", "MultiheadAttention", "RNN"}
# Members of classes that Python or nanobind puts there.
PLUMBING = {"__module__", "__doc__", "__dict__", "__weakref__", "__slots__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__setattr__",
            "__delattr__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__dir__", "__vectorcalloffset__",
            "__abstractmethods__", "__orig_bases__", "__parameters__", "__match_args__", "__static_attributes__", "__firstlineno__", "__annotations__",
            "__nb_enum__", "__format__", "__get__", "__wrapped__", "__hash__", "__array_ufunc__"}
SHADOWED = {"int", "float", "bool", "str", "type", "dtype", "device"}  # which members of classes and modules are called, too


class Stub:
    """The stub of one module."""

    def __init__(self, module, homes, bound):
        self.module, self.homes, self.bound = module, homes, bound
        self.classes = {name: home for home, name in homes.values() if name[0].isupper() or name in ("dtype", "device")}
        self.is_core = module.__name__.startswith("grapnel._core")
        self.part = module.__name__.removeprefix("grapnel._core").lstrip(".") if self.is_core else None
        self.written = Written(TYPES / f"{module.__name__.partition('.')[2] or '__init__'}.pyi")
        self.imports, self.body = [], []

    def text(self):
        for name, value in sorted(vars(self.module).items(), key=self._order):
            if not name.startswith("__") and name not in ("annotations",):
                self._put(name, value)
        self._put_what_is_used()
        self.written.check()
        if hasattr(self.module, "__all__"):
            self.body.append(ast.parse(f"__all__ = {self.module.__all__!r}").body[0])
        body = self.written.header + self.body
        clash = {name for name, value in vars(self.module).items() if name in SHADOWED and not isinstance(value, type)}
        if clash:
            body = [_Unshadowed(clash).visit(n) for n in body]
        out = ast.Module(self._needed(body) + self.imports + body, [])
        doc = doc_of(self.module)
        if doc:
            out.body.insert(0, ast.Expr(ast.Constant(doc)))
        return finished(ast.unparse(ast.fix_missing_locations(_Indented().visit(out))))

    def _put_what_is_used(self):
        """Private classes that signatures name."""
        done = False
        while not done:
            used = {n.id for node in self.body for n in ast.walk(node) if isinstance(n, ast.Name)} - {n.name for n in self.body if isinstance(n, ast.ClassDef)}
            missing = [n for n in sorted(used) if n.startswith("_") and isinstance(vars(self.module).get(n), type)
                       and self.homes.get(id(vars(self.module)[n])) == (self.module.__name__, n)]
            self.body += [self._class(name, vars(self.module)[name], name) for name in missing]
            done = not missing

    def _order(self, item):
        """Classes behind those that they derive from, and everything else as it comes."""
        return len(item[1].__mro__) if isinstance(item[1], type) else 0

    def _needed(self, body):
        """Imports of the names that annotations use and the module does not have."""
        own = {n.name for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef))} | {a.asname or a.name for n in self.imports for a in n.names}
        own |= {n.targets[0].id for n in body if isinstance(n, ast.Assign)} | {n.target.id for n in body if isinstance(n, ast.AnnAssign)}
        used = {n.id for node in body for n in ast.walk(node) if isinstance(n, ast.Name)}
        found, lines = {}, []
        for name in sorted(used - own):
            plain = name.removeprefix("_")
            home = HOME_OF.get(name) or self.classes.get(name)
            if home and home != self.module.__name__:
                found.setdefault(home, []).append(name)
            elif name[0] == "_" and plain in SHADOWED and plain in ("dtype", "device"):
                lines.append(f"{name} = {plain}" if self.part == "" else f"from grapnel._core import {plain} as {name}")
            elif name[0] == "_" and plain in SHADOWED:
                lines.append(f"from builtins import {plain} as {name}")
        return ast.parse("\n".join([f"from {home} import {', '.join(names)}" for home, names in found.items()] + lines)).body

    def _import(self, module, name, alias):
        self.imports.append(ast.ImportFrom(module, [ast.alias(name, alias)], 0))

    def _put(self, name, value):
        known = self.written.take(name)
        if name.startswith("_") and name not in self.written.found and not self._is_base(value):
            return
        if inspect.ismodule(value):
            parent, _, last = value.__name__.rpartition(".")
            if value.__name__.startswith("grapnel.") and not any(value.__name__.startswith(x) for x in LEFT_OUT):
                self._import(parent, last, name)
            return
        if known and not isinstance(value, type):
            known = merged(known, value, f"{self.module.__name__}.{name}")
            self.body += overloaded(with_doc(known, doc_of(value) if is_function(value) else None))
            return
        if isinstance(value, type) or is_function(value):
            home = self.homes.get(id(value))
            if home is None:
                return  # of another package
            if home != (self.module.__name__, name):
                self._import(*home, name)
            elif isinstance(value, type):
                self.body.append(self._class(name, value, name))
            else:
                self.body += self._function(name, value, self.bound.find(self.part, name))
            return
        self.body.append(ast.parse(f"{name}: {self._type_of(value)}").body[0])

    def _is_base(self, value):
        """Private classes that public ones are made of."""
        return isinstance(value, type) and self.homes.get(id(value), ("",))[0] == self.module.__name__ and (
            issubclass(value, Exception) or any(c is not value and not c.__name__.startswith("_") for c in _all_subclasses(value)))

    def _type_of(self, value):
        kind = type(value)
        if kind in (bool, int, float, str):
            return kind.__name__
        home = self.homes.get(id(kind))
        if home is None:
            return "Any"
        if home[0] != self.module.__name__ and not any(a.name == home[1] for n in self.imports for a in n.names):
            if HOME_OF.get(home[1]) != home[0]:
                self._import(*home, home[1])
        return home[1]

    def _function(self, name, value, bound=None):
        doc = None if is_nanobind(value) else doc_of(value)
        if bound:
            return overloaded(bound)
        return overloaded(with_doc(from_nanobind(value, name) if is_nanobind(value) else from_python(value, name), doc))

    # --- classes ---

    def _is_named_tuple(self, cls):
        """Also with methods: derived from one that has no name of its own in a module."""
        base = cls.__bases__[0]
        return hasattr(cls, "_fields") and (base is tuple or (base.__bases__ == (tuple,) and id(base) not in self.homes))

    def _bases(self, name, cls):
        if self._is_named_tuple(cls):
            return [ast.Name("NamedTuple")]
        out = []
        for base in cls.__bases__:
            home = self.homes.get(id(base))
            if base is object:
                continue
            if home is None:
                imported = base.__name__ in GENERIC or base.__name__ in HOME_OF or base.__module__ == "builtins"
                if not imported and not any(a.asname == base.__name__ for n in self.imports for a in n.names):
                    self._import(base.__module__, base.__name__, base.__name__)
                out.append(ast.parse(GENERIC.get(base.__name__, base.__name__), mode="eval").body)
                continue
            if home[0] != self.module.__name__ and not any(a.asname == home[1] for n in self.imports for a in n.names):
                self._import(*home, home[1])
            out.append(ast.Name(home[1]))
        return self.written.bases.get(name) or out

    def _class(self, name, cls, path):
        self.written.take(path)
        body, members = [], dict(vars(cls))
        if self._is_named_tuple(cls):
            for field in cls._fields:
                body += self.written.take(f"{path}.{field}") or [ast.parse(f"{field}: Any").body[0]]
            members = {} if cls.__bases__ == (tuple,) else {k: v for k, v in members.items() if inspect.isfunction(v) or isinstance(v, property)}
            for member, value in members.items():
                body += self._member(member, value, path, cls)
        elif issubclass(cls, enum.Enum):
            body += [ast.parse(f"{m} = {v.value!r}").body[0] for m, v in cls.__members__.items()]
            members = {k: v for k, v in members.items() if isinstance(v, property)}
            for member, value in members.items():
                body += self._member(member, value, path, cls)
        else:
            for member, value in members.items():
                body += self._member(member, value, path, cls)
            body += self._attributes(cls, path, members)
            body += self._layer(cls)
        # What is written down and not among the members, such as operators or what an object's own dictionary holds.
        for known, nodes in self.written.found.items():
            prefix, _, member = known.rpartition(".")
            if prefix != path or known in self.written.used:
                continue
            if member.startswith("__") or hasattr(cls, member) or isinstance(nodes[0], ast.AnnAssign):
                body += overloaded(self.written.take(known))
        names = {n.name for n in body if isinstance(n, ast.FunctionDef)} | {n.target.id for n in body if isinstance(n, ast.AnnAssign)}
        clash = names & SHADOWED if not issubclass(cls, enum.Enum) else set(cls.__members__) & SHADOWED
        if clash:
            body = [_Unshadowed(clash).visit(n) for n in body]
        doc = doc_of(cls) if "__doc__" in vars(cls) else None
        if doc:
            body.insert(0, ast.Expr(ast.Constant(doc)))
        return ast.ClassDef(name, self._bases(path, cls), [], body or [ast.Expr(ast.Constant(...))], [])

    def _member(self, name, value, path, cls):
        known = self.written.take(f"{path}.{name}")
        if known:
            raw = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if raw is value:
                known = merged(known, value, f"{self.module.__name__}.{path}.{name}")
            return overloaded(with_doc(known, None if isinstance(raw, (bool, int, float, str, tuple)) else doc_of(raw)))
        if name in PLUMBING or (name.startswith("_") and not name.startswith("__")) or (name == "__new__" and not inspect.isfunction(
                getattr(value, "__func__", value))):
            return []
        if name in ("__init__", "__delitem__") and isinstance(value, type(object.__init__)):
            return []  # a slot that is there because another one is
        if isinstance(value, property):
            return self._property(name, value)
        if self.part == "" and self.bound.find(cls.__name__, name):
            return overloaded(self.bound.find(cls.__name__, name))
        kind = type(value).__name__
        if kind in ("staticmethod", "classmethod"):
            nodes = self._function(name, value.__func__)
            for node in nodes:
                node.decorator_list.append(ast.Name(kind))
                if kind == "classmethod" and not (node.args.args or node.args.posonlyargs):
                    node.args.args.insert(0, ast.arg("cls"))
            return nodes
        if kind in ("getset_descriptor", "member_descriptor"):
            return with_doc([parse_function(f"@property\ndef {name}(self) -> Any: ...")], doc_of(value))
        if is_function(value):
            nodes = self._function(name, value)
            if kind == "nb_func":
                for node in nodes:
                    node.decorator_list.append(ast.Name("staticmethod"))
            return nodes
        if isinstance(value, type):
            return []
        return [ast.parse(f"{name}: {self._type_of(value)}").body[0]]

    def _property(self, name, value):
        getter = from_nanobind(value.fget, name)[0] if is_nanobind(value.fget) else parse_function(f"def {name}(self) -> Any: ...")
        for argument in getter.args.args:
            argument.annotation = None
        getter.decorator_list = [ast.Name("property")]
        out = with_doc([getter], doc_of(value))
        if value.fset is not None:
            out.append(parse_function(f"@{name}.setter\ndef {name}(self, value: {ast.unparse(getter.returns)}) -> None: ..."))
        return out

    def _attributes(self, cls, path, members):
        """What __init__ sets."""
        node, out, seen = source_of(cls), [], set(members) | {n for base in cls.__mro__[1:] for n in vars(base)}
        for method in node.body if isinstance(node, ast.ClassDef) else []:
            if not (isinstance(method, ast.FunctionDef) and method.name in ("__init__", "__new__")):
                continue
            types = {p.name: argument_type(p.name, p.default) for p in inspect.signature(vars(cls)[method.name]).parameters.values()}
            for target, value in _assigned(method):
                if target in seen or target.startswith("_"):
                    continue
                seen.add(target)
                annotation = types.get(value.id, "Any") if isinstance(value, ast.Name) else "Any"
                out += self.written.take(f"{path}.{target}") or [ast.parse(f"{target}: {annotation}").body[0]]
        return out

    def _layer(self, cls):
        """A layer of the C++ library: what it is made with, and what forward takes."""
        from grapnel import _core
        from grapnel.nn.layers import Layer

        table = {name: inputs for name, _, inputs in _core._layers()}
        if not issubclass(cls, Layer) or vars(cls).get("_layer") not in table:
            return []
        made_with = signature_text(cls._signature)
        tail = "" if "**" in made_with else (", " if made_with else "") + "*, device: device | str | None = None, dtype: DTypeLike | None = None"
        out = [parse_function(f"def __init__(self, {made_with}{tail}) -> None: ...")]
        inputs = inspect.signature(eval(f"lambda {table[cls._layer]}: None", {}))  # the table's own text
        result = "tuple[Tensor, Any]" if cls._layer in GIVE_PAIRS else "Tensor"
        for method in ("forward", "__call__"):
            out.append(parse_function(f"def {method}(self, {signature_text(inputs, input_type)}) -> {result}: ..."))
        for p in cls._signature.parameters.values():
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "bias":
                out.append(ast.parse(f"{p.name}: {argument_type(p.name, p.default)}").body[0])
        try:
            layer = cls(*[1 for p in cls._signature.parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD])
        except (RuntimeError, TypeError, ValueError):
            return out
        for kind, members in (("Parameter", layer._parameters), ("Tensor", layer._buffers)):
            out += [ast.parse(f"{member}: {kind}").body[0] for member in members if member == "bias" or member not in cls._signature.parameters]
        return out


class _Unshadowed(ast.NodeTransformer):
    """int becomes _int where a class has a member of that name."""

    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        return ast.Name("_" + node.id) if node.id in self.names else node

    def visit_FunctionDef(self, node):
        decorators, node.decorator_list = node.decorator_list, []
        out = self.generic_visit(node)
        out.decorator_list = decorators
        return out

    def visit_AnnAssign(self, node):
        node.annotation = self.visit(node.annotation)
        return node

    def visit_Assign(self, node):
        return node


class _Indented(ast.NodeTransformer):
    """Lines of documentation get the indentation of where they stand."""

    depth = 0

    def visit_ClassDef(self, node):
        self.depth += 1
        doc = ast.get_docstring(node)
        if doc:
            node.body[0] = ast.Expr(ast.Constant(textwrap.indent(doc, "    " * self.depth).strip()))
        for inner in node.body:
            self.visit(inner)
        self.depth -= 1
        return node

    def visit_FunctionDef(self, node):
        doc = ast.get_docstring(node)
        if doc:
            node.body[0] = ast.Expr(ast.Constant(textwrap.indent(doc, "    " * (self.depth + 1)).strip()))
        return node


def finished(text):
    """Short bodies on the line of their header, and no complaints about == of tensors, which gives a tensor."""
    text = re.sub(r":\n +\.\.\.(?=\n|$)", ": ...", text)
    text = re.sub(r"(def __(?:eq|ne)__\(.*-> Tensor: \.\.\.)", r"\1  # type: ignore[override]", text)
    text = re.sub(r"(def __new__\(.*-> _F: \.\.\.)", r"\1  # type: ignore[misc]", text)  # a decorator without parentheses
    return text + "\n"


def _assigned(method):
    """(name, value) of self.name = value, also in tuples."""
    for node in own_nodes(method):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [ast.Constant(None)] * len(target.elts)
                pairs = list(zip(target.elts, values))
            for left, right in pairs:
                if isinstance(left, ast.Attribute) and isinstance(left.value, ast.Name) and left.value.id == "self":
                    yield left.attr, right


def _all_subclasses(cls):
    for sub in type.__subclasses__(cls):
        yield sub
        yield from _all_subclasses(sub)


def modules_of(package):
    out = [importlib.import_module("grapnel._core"), package]
    for info in pkgutil.walk_packages(package.__path__, "grapnel."):
        if not any(info.name.startswith(x) for x in LEFT_OUT) and info.name != "grapnel._core":
            out.append(importlib.import_module(info.name))
    return out + [module for name, module in sorted(sys.modules.items()) if name.startswith("grapnel._core.")]


def homes_of(modules):
    """Where each class and function stands: in _core, or where it says it is from, or where it was found first."""
    names, out = {m.__name__: m for m in modules}, {}
    for core in [m for m in modules if m.__name__.startswith("grapnel._core")]:
        for name, value in vars(core).items():
            if isinstance(value, type) or is_function(value):
                out.setdefault(id(value), (core.__name__, name))
    for module in modules:
        for name, value in vars(module).items():
            if (isinstance(value, type) or is_function(value)) and id(value) not in out:
                home = str(getattr(value, "__module__", ""))
                if home in names and vars(names[home]).get(value.__name__) is value:
                    out[id(value)] = (home, value.__name__)
                elif home.startswith("grapnel"):
                    out[id(value)] = (module.__name__, name)
    return out


def stubs(folder, ops):
    """The text of every stub, by its path."""
    sys.path.insert(0, str(folder))
    package = importlib.import_module("grapnel")
    modules = modules_of(package)
    homes, bound, out = homes_of(modules), Bound(ops), {}
    for module in modules:
        path = module.__name__.replace(".", "/")
        is_package = hasattr(module, "__path__") or any(m.__name__.startswith(module.__name__ + ".") for m in modules)
        out[f"{path}/__init__.pyi" if is_package else f"{path}.pyi"] = Stub(module, homes, bound).text()
    out["grapnel/py.typed"] = ""
    return out


def main():
    package, ops, output = map(pathlib.Path, sys.argv[1:])
    made = stubs(package, ops)
    for name, text in made.items():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in list(output.rglob("*.pyi")):
        if str(path.relative_to(output)) not in made:
            path.unlink()


if __name__ == "__main__":
    main()
