"""The stubs say what the package has: all of it, with types that hold, as the generator writes them."""
import ast
import importlib
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import grapnel as g
from grapnel import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = pathlib.Path(g.__file__).absolute().parents[1]  # build/.../python
STUBS, OPS = BUILT / "stubs", BUILT / "made" / "ops.pyi"
FILES = sorted(path.relative_to(STUBS) for path in STUBS.rglob("*.pyi"))
MODULES = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in FILES]


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    return importlib.import_module("stubs")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """mypy's, which the tests share."""
    return str(tmp_path_factory.mktemp("mypy"))


def declared(body):
    names = set()
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


def mypy(cache, *arguments, program="mypy"):
    environment = {**os.environ, "MYPYPATH": str(STUBS), "PYTHONPATH": str(BUILT)}
    return subprocess.run([sys.executable, "-m", program, *arguments] + (["--cache-dir", cache] if program == "mypy" else []), cwd=cache,
                          env=environment, capture_output=True, text=True, timeout=250)


def test_the_stubs_are_what_the_generator_writes(tmp_path):
    subprocess.run([sys.executable, "-B", ROOT / "python" / "stubs.py", BUILT, OPS, tmp_path], check=True, timeout=60)
    again = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(FILES) > 30 and again.keys() == {*FILES, pathlib.Path("grapnel/py.typed")}
    for path in again:
        assert (STUBS / path).read_text() == again[path], path


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_stub(name):
    module = importlib.import_module(name)
    body = ast.parse((STUBS / FILES[MODULES.index(name)]).read_text()).body
    public = {n for n, value in vars(module).items() if not n.startswith("_") and (
        str(getattr(value, "__module__", "")).startswith("grapnel") or type(value).__module__.startswith("grapnel"))}
    assert public <= declared(body)


@pytest.mark.parametrize("cls", [c for c in vars(_core).values() if inspect.isclass(c) and not c.__name__.startswith("_")], ids=lambda c: c.__name__)
def test_every_public_member_has_a_stub(cls):
    name = next(n for n, value in vars(_core).items() if value is cls)
    stub = next(n for n in ast.parse((STUBS / "grapnel/_core/__init__.pyi").read_text()).body if isinstance(n, ast.ClassDef) and n.name == name)
    assert {n for n in vars(cls) if not n.startswith("_")} <= declared(stub.body)


def test_operations_have_the_types_of_the_headers():
    body = ast.parse((STUBS / "grapnel/_core/__init__.pyi").read_text()).body
    tensor = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    functions = {n.name: n for n in body if isinstance(n, ast.FunctionDef)}
    assert ast.unparse(functions["matmul"].args) == "input: Tensor, other: Tensor" and ast.unparse(functions["matmul"].returns) == "Tensor"
    assert "x where it is positive" in ast.get_docstring(functions["leaky_relu"])
    vague = {n.name for n in [*functions.values(), *tensor.body] if isinstance(n, ast.FunctionDef) and ast.unparse(n.returns) == "Any"}
    assert not vague - {"tolist", "numpy", "__array__", "__dlpack__"}, "what src/ binds by hand has its types in types/_core.pyi"


def test_a_new_op_is_in_the_stub(generator, tmp_path, monkeypatch):
    """An op that the generator of bindings found gets the types of its declaration, without a line about it."""
    ops = tmp_path / "ops.pyi"
    ops.write_text("def wibble(input: Tensor, dim: int | Sequence[int], strength: float = 0.5) -> Tensor:\n    'What wibbling is.'\n" + OPS.read_text())
    monkeypatch.setattr(_core, "wibble", lambda *args: None, raising=False)
    text = generator.Stub(_core, generator.homes_of([_core]), generator.Bound(ops)).text()
    assert "def wibble(input: Tensor, dim: int | Sequence[int], strength: float=0.5) -> Tensor:\n    \"\"\"What wibbling is.\"\"\"" in text


def test_types_of_what_is_not_there_are_refused(generator, tmp_path, monkeypatch):
    (tmp_path / "_printing.pyi").write_text("def no_such_function() -> None: ...\n")
    monkeypatch.setattr(generator, "TYPES", tmp_path)
    module = importlib.import_module("grapnel._printing")
    with pytest.raises(SystemExit, match="_printing.pyi: there is no no_such_function"):
        generator.Stub(module, generator.homes_of([_core, module]), generator.Bound(OPS)).text()


def test_mypy_finds_the_stubs_sound(cache):
    done = mypy(cache, "--strict", "-p", "grapnel")
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_is_content_with_a_typed_program(cache):
    done = mypy(cache, "--strict", str(ROOT / "examples/python/typed_step.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_mistakes(cache, tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text("import grapnel as g\n\nx = g.ones(2)\nx.no_such_method()\ng.add(x, 'one')\ny: int = x.sum()\n"
                       "g.nn.Linear(2)\nx.register_hook(lambda: None)\ng.nn.Linear(2, 3)(1)\n")
    done = mypy(cache, "--strict", str(program))
    assert {int(line) for line in re.findall(r"wrong\.py:(\d+): error", done.stdout)} == {4, 5, 6, 7, 8, 9}, done.stdout


def test_stubs_and_package_agree(cache):
    """Names and arguments, as mypy's own comparison sees them. It does not know the metaclass of nanobind's types, nor types with slots."""
    done = mypy(cache, "grapnel", "--concise", "--ignore-unused-allowlist", "--allowlist", str(ROOT / "python/types/allowed.txt"), program="mypy.stubtest")
    found = [line for line in done.stdout.splitlines() if not re.search(r"metaclass differs$|is a disjoint base at runtime", line)]
    assert not found and not done.stderr, done.stdout + done.stderr


def test_the_typed_program_runs():
    done = subprocess.run([sys.executable, ROOT / "examples/python/typed_step.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and re.fullmatch(r"5 gradients seen, error \d\.\d+\n", done.stdout), done.stdout + done.stderr
