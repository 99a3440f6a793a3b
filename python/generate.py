#!/usr/bin/env python3
"""Writes the bindings of all functions and methods of tensors, and their signatures for stubs, read from the public headers.

    generate.py COMPILER SOURCE_ROOT OUTPUT_FOLDER

It makes ops_N.cpp and ops.pyi, which stubs.py reads. The compiler expands the lists of ops, so what is declared in functions.h, factories.h and tensor.h is what Python gets: names, arguments,
defaults and the sentence above a declaration. A new op needs nothing here. What cannot be said in Python, or is said by hand, stands in SKIPPED;
any other declaration that this script does not understand is an error.
"""
import ast
import pathlib
import re
import subprocess
import sys

FAMILIES = "functions", "one_call", "arranging", "geometry", "pointwise", "resizing", "sampling", "statistics"
HEADERS = [("functions", f"grapnel/functions/{family}.h") for family in FAMILIES]
HEADERS += [("factories", "grapnel/functions/factories.h"), ("methods", "grapnel/tensor/tensor.h"), ("init", "grapnel/nn/init.h")]
NAMESPACES = {"init": "grapnel::nn::init"}  # others: grapnel
UNITS = 4  # sources that the bindings are spread over, so that they compile side by side

# Written by hand in src/, because Python says it in another way, or not offered, because Python has no use for it.
SKIPPED = {
    "functions": {"equal", "interpolate", "unique"},
    "factories": {"tensor", "from_blob", "declare_stable"},
    "methods": {
        "defined", "dim", "size", "stride", "numel", "shape", "sizes", "strides", "storage_offset", "dtype", "scalar_type", "device", "options", "ndimension",
        "is_same", "is_alias_of", "_version", "use_count", "reset", "data_ptr", "const_data_ptr", "accessor", "item", "equal", "str", "index",
        "index_put_", "requires_grad", "set_requires_grad", "requires_grad_", "grad_fn", "output_nr", "grad", "mutable_grad", "set_grad",
        "reset_grad", "zero_grad", "backward", "data", "tensor_data", "set_data", "_base", "name", "set_name", "register_hook", "is_leaf",
        "register_post_accumulate_grad_hook", "remove_hook", "impl", "impl_ptr", "handle", "toType", "element_size", "itemsize", "nbytes",
        "mT", "is_view", "is_inference", "undefined", "retain_grad", "retains_grad", "to", "cpu", "layout",
    },
}
# C++ type -> type of the caster in src/casters.h.
TYPES = {
    "const Tensor&": "const Tensor&", "Tensor": "const Tensor&", "const Scalar&": "const Scalar&", "Scalar": "const Scalar&", "int64_t": "int64_t", "bool": "bool", "double": "double",
    "uint64_t": "uint64_t", "IntArrayRef": "const Ints&", "TensorList": "const Tensors&", "DType": "DTypeArg", "std::string_view": "std::string_view",
    "std::optional<DType>": "std::optional<DTypeArg>", "const std::optional<Scalar>&": "const std::optional<Scalar>&",
    "std::optional<int64_t>": "std::optional<int64_t>", "std::optional<double>": "std::optional<double>", "Reduce": "Reduction",
    "std::optional<Generator>": "std::optional<Generator>", "FanMode": "FanModeName", "Nonlinearity": "NonlinearityName",
}
RETURNS = {"Tensor", "Tensor&", "bool", "std::vector<Tensor>", "TensorPair", "std::tuple<Tensor, Tensor>", "int64_t", "double", "Fans"}
NUMBERS = {"double", "Fans"}  # results of functions that compute nothing on tensors
# Python's names for arguments, by function where they differ.
ARGUMENTS = {"dims": "dim", "sizes": "size", "x": "input", "a": "input", "b": "other"}
BY_FUNCTION = {
    ("permute", "dims"): "dims", ("flip", "dims"): "dims", ("mm", "b"): "mat2", ("bmm", "b"): "mat2", ("mv", "vector"): "vec",
    ("addmm", "a"): "mat1", ("addmm", "b"): "mat2", ("addcmul", "a"): "tensor1", ("addcmul", "b"): "tensor2", ("addcdiv", "a"): "tensor1",
    ("addcdiv", "b"): "tensor2", ("where", "b"): "other", ("linear", "x"): "input", ("lerp", "start"): "input", ("one_hot", "indices"): "input",
    ("nll_loss", "log_probs"): "input", ("cross_entropy", "logits"): "input", ("binary_cross_entropy_with_logits", "logits"): "input",
    ("embedding", "indices"): "input", ("scatter", "source"): "src", ("scatter_", "source"): "src", ("scatter_add", "source"): "src",
    ("scatter_add_", "source"): "src", ("index_add", "source"): "source", ("copy_", "source"): "src", ("roll", "shift"): "shifts",
    ("init.uniform_", "low"): "a", ("init.uniform_", "high"): "b", ("init.trunc_normal_", "low"): "a", ("init.trunc_normal_", "high"): "b",
    ("init.constant_", "value"): "val", ("init.eye_", "matrix"): "tensor", ("init.kaiming_uniform_", "a"): "a", ("init.kaiming_normal_", "a"): "a",
    ("init.kaiming_uniform_", "f"): "nonlinearity", ("init.kaiming_normal_", "f"): "nonlinearity",
    ("init.calculate_gain", "f"): "nonlinearity", ("init.calculate_gain", "a"): "param",
    ("repeat", "repeats"): "repeats", ("split", "split_size"): "split_size", ("unflatten", "sizes"): "sizes", ("exponential_", "lambda"): "lambd",
}
# Lists of integers that may also be written one by one: x.view(2, 3).
SPREAD = {"view", "reshape", "permute", "expand", "repeat", "flip", "empty", "zeros", "ones", "rand", "randn", "tile"}
# Work that is worth letting other threads run, from fewer elements on.
HEAVY = {"matmul", "mm", "bmm", "mv", "addmm", "linear", "einsum", "conv1d", "conv2d", "scaled_dot_product_attention"}


# What stubs say: of results, of casters (in names of types/_core.pyi), and under which heading.
RESULTS = {
    "Tensor": "Tensor", "Tensor&": "Tensor", "bool": "bool", "std::vector<Tensor>": "tuple[Tensor, ...]", "TensorPair": "ValuesIndices",
    "std::tuple<Tensor, Tensor>": "ValuesIndices", "int64_t": "int", "double": "float", "Fans": "tuple[int, int]",
}
ANNOTATIONS = {
    "const Tensor&": "Tensor", "const MaybeTensor&": "Tensor | None", "const Scalar&": "float", "int64_t": "int", "bool": "bool", "double": "float",
    "uint64_t": "int", "const Ints&": "int | Sequence[int]", "const Dims&": "int | Sequence[int] | None", "const Tensors&": "Sequence[Tensor]",
    "DTypeArg": "DTypeLike", "std::string_view": "str", "std::optional<DTypeArg>": "DTypeLike | None",
    "const std::optional<Scalar>&": "float | None", "std::optional<int64_t>": "int | None", "std::optional<double>": "float | None",
    "Reduction": 'Literal["none", "mean", "sum"]', "std::optional<Generator>": "Generator | None",
    "FanModeName": 'Literal["fan_in", "fan_out"]', "NonlinearityName": "str",
}
PARTS = {"methods": "Tensor", "init": "_init"}


class Problem(Exception):
    pass


def expanded(compiler, root, header):
    """The lines of one header after the preprocessor, comments kept."""
    text = subprocess.run([compiler, "-std=c++20", "-E", "-CC", "-I", root, "-x", "c++", f"{root}/{header}"],
                          check=True, capture_output=True, text=True).stdout
    lines, own = [], False
    for line in text.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            own = marker[1].endswith(header)
        elif own:
            lines.append(line)
    return "\n".join(lines)


def split_top(text, separator=","):
    """Splits at separators outside of all brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "<({["
        depth -= c in ">)}]"
        if c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def without_bodies(text):
    """Functions that are defined where they are declared become declarations."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c == "{":
            # An initialiser stays: it is behind a = or inside of brackets.
            before = text[:i].rstrip()
            if depth == 0 and (before.endswith((")", "const", "noexcept"))):
                out.append(text[start:i] + ";")
                depth = 1
            elif depth:
                depth += 1
        elif c == "}" and depth:
            depth -= 1
            if depth == 0:
                start = i + 1
    return "".join(out) + text[start:]


DECLARATION = re.compile(r"^(?P<result>[\w:<>, ]+?[&]?)\s+(?P<name>\w+) ?\((?P<arguments>.*)\)\s*(?:const)?(?:\s*noexcept)?$", re.S)


def declarations(text):
    """(comment, result, name, arguments) of each function; comments are carried on to overloads that stand below."""
    comment, fresh = "", False
    pending = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("///"):
            comment = (comment + " " if fresh else "") + stripped[3:].strip()
            fresh = True
            continue
        if stripped.startswith(("//", "public:", "private:")) or not stripped:
            if not stripped or stripped.startswith("// ---"):
                comment, fresh = "", False
            continue
        pending += " " + stripped
        while ";" in pending:
            statement, pending = pending.split(";", 1)
            statement = re.sub(r"\s+", " ", statement).strip()
            if match := DECLARATION.match(statement):
                yield comment, match["result"].strip(), match["name"], match["arguments"]
            fresh = False


class Argument:
    def __init__(self, text, function, is_method):
        text, _, default = (part.strip() for part in text.partition("="))
        match = re.match(r"^(.*[\s&>])(\w+)$", text)
        if not match:
            raise Problem(f"argument '{text}'")
        self.type, self.cpp = match[1].strip(), match[2]
        self.name = BY_FUNCTION.get((function, self.cpp)) or ARGUMENTS.get(self.cpp, self.cpp)
        if self.name == "input" and is_method:
            self.name = self.cpp
        self.default = default or None
        self.is_options = "TensorOptions" in self.type
        if not self.is_options and self.type not in TYPES:
            raise Problem(f"type '{self.type}'")
        self.caster = None if self.is_options else TYPES[self.type]
        if self.caster == "const Tensor&" and self.default == "{}":
            self.caster = "const MaybeTensor&"
        if self.type == "IntArrayRef" and self.name == "dim":
            self.caster = "const Dims&"

    def declared(self):
        if self.is_options:
            return "std::optional<DTypeArg> dtype, std::optional<DeviceArg> device, bool requires_grad"
        return f"{self.caster} {self.name}"

    def passed(self):
        return "options_of(dtype, device, requires_grad)" if self.is_options else f"given({self.name})"

    def in_stub(self):
        """How a stub writes it."""
        if self.is_options:
            return "*, dtype: DTypeLike | None = None, device: device | str | None = None, requires_grad: bool = False"
        text = f"{self.name}: {ANNOTATIONS[self.caster]}"
        if self.default is None:
            return text
        if self.default in ("{}", "std::nullopt"):
            return text + (" = ()" if self.caster == "const Ints&" else " = None")
        value = {"true": "True", "false": "False"}.get(self.default, self.default.strip("{}"))
        if "::" in value:
            enumeration, one = value.split("::")[-2:]
            value = repr({"FanMode": f"fan_{one}"}.get(enumeration, one))
        try:
            ast.literal_eval(value)
        except (ValueError, SyntaxError):
            value = "..."  # a constant of C++
        return f"{text} = {value}"

    def annotated(self):
        if self.is_options:
            return 'nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false'
        text = f'"{self.name}"_a'
        if self.default is None:
            return text
        if self.default in ("{}", "std::nullopt"):
            value = "nb::make_tuple()" if self.type == "IntArrayRef" else "nb::none()"
            if self.caster == "const Dims&":
                value = "nb::none()"
        elif self.default.startswith("{"):
            value = self.default[1:-1]
        elif "FanMode::" in self.default:
            value = f'"fan_{self.default.split("::")[1]}"'
        elif "Nonlinearity::" in self.default or "Reduce::" in self.default:
            value = f'"{self.default.split("::")[1]}"'
        elif self.type == "const Scalar&":
            value = f"Scalar({self.default})"
        else:
            value = self.default
        return f"{text} = {value}"


def stub(name, kind, arguments, result, comment):
    """The signature of one overload."""
    indent = "    " if kind in PARTS else ""
    listed = ", ".join((["self"] if kind == "methods" else []) + arguments)
    text = f"{indent}def {name}({listed}) -> {RESULTS[result]}:"
    return f"{text}\n{indent}    {comment!r}\n" if comment else f"{text} ...\n"


def binding(kind, comment, result, name, arguments_text):
    """The source of one overload (two if its sizes may be written one by one), and as many signatures."""
    method = kind == "methods"
    if result not in RETURNS:
        raise Problem(f"result '{result}'")
    arguments = [Argument(a, f"init.{name}" if kind == "init" else name, method) for a in split_top(arguments_text)]
    tensors = (["self"] if method else []) + [a.name for a in arguments if a.caster in ("const Tensor&", "const Tensors&")]
    work = f"{'heavy' if name in HEAVY else 'work'}({', '.join(tensors)})"
    call = f"self.{name}" if method else f"{NAMESPACES.get(kind, 'grapnel')}::{name}"
    python = {"str": "__str__"}.get(name, name)
    target = f'on_tensor("{python}", ' if method else f'{"init" if kind == "init" else "m"}.def("{python}", '
    doc = ', "' + comment.replace("\\", "\\\\").replace('"', '\\"') + '"' if comment else ""

    def emit(declared, passed, annotated):
        self_arg = ["const Tensor& self"] if method else []
        body = f"return run({work}, [&]() -> decltype(auto) {{ return {call}({', '.join(passed)}); }});"
        if result in NUMBERS:
            body = f"return given({call}({', '.join(passed)}));"
        parts = [f"[]({', '.join(self_arg + declared)}) {{ {body} }}"] + annotated
        return f"  {target}{', '.join(parts)}{doc});\n"

    stubs = [stub(python, kind, [a.in_stub() for a in arguments], result, comment)]
    plain = emit([a.declared() for a in arguments], [a.passed() for a in arguments], [a.annotated() for a in arguments])
    if name in SPREAD and arguments and arguments[0].type == "IntArrayRef" and all(a.is_options for a in arguments[1:]):
        rest = arguments[1:]
        annotated = [a.annotated().replace("nb::kw_only(), ", "") for a in rest]
        plain += emit([f"nb::args {arguments[0].name}"] + [a.declared() for a in rest], [f"Spread({arguments[0].name}).ints()"] + [a.passed() for a in rest],
                      [f'"{arguments[0].name}"_a'] + annotated)
        stubs.append(stub(python, kind, [f"*{arguments[0].name}: int"] + [a.in_stub().removeprefix("*, ") for a in rest], result, comment))
    return plain, stubs


def bindings(compiler, root):
    out = []
    for kind, header in HEADERS:
        text = expanded(compiler, root, header)
        if kind == "methods":
            text = re.search(r"class Tensor \{(.*?)\n\s*private:", text, re.S)[1]
        else:
            name = NAMESPACES.get(kind, "grapnel")
            text = re.search(rf"namespace {name} \{{(.*)\}}\s*// namespace {name}", text, re.S)[1]
            text = re.sub(r"^namespace \w+ \{", "", text, flags=re.M)
        seen = set()
        for comment, result, name, arguments in declarations(without_bodies(text)):
            if name in SKIPPED.get(kind, ()) or name.startswith("operator") or "std::initializer_list" in arguments or result.startswith(("template", "explicit", "return", "using")):
                continue
            try:
                source, stubs = binding(kind, comment, result, name, arguments)
            except Problem as problem:
                raise SystemExit(f"{header}: {name}({arguments}): no way to bind {problem}. Add it to generate.py.") from None
            if source not in seen:
                seen.add(source)
                out.append((kind, name, source, stubs))
    return out


def main():
    compiler, root, folder = sys.argv[1:]
    groups, stubs = {}, {}
    for kind, name, source, signatures in bindings(compiler, root):
        part = PARTS.get(kind, "")
        groups.setdefault((part, name), []).append(source)  # overloads stay together, in their order
        stubs.setdefault(part, []).extend(signatures)
    units = [[] for _ in range(UNITS)]
    for i, sources in enumerate(groups.values()):
        units[i % UNITS].extend(sources)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for i, unit in enumerate(units):
        includes = "".join(f'#include "{header}"\n' for _, header in HEADERS)
        text = (f"// Made by python/generate.py from the public headers.\n{includes}#include \"python/src/nn_init.h\"\n\nnamespace grapnel::python {{\n\n"
                f"void bind_ops_{i}(nb::module_& m) {{\n  [[maybe_unused]] nb::module_ init = m.def_submodule(\"_init\");\n{''.join(unit)}}}\n\n}}  // namespace grapnel::python\n")
        path = folder / f"ops_{i}.cpp"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    parts = [(f"\nclass {part}:\n" if part else "") + "".join(signatures) for part, signatures in stubs.items()]
    (folder / "ops.pyi").write_text("".join(parts))


if __name__ == "__main__":
    main()
