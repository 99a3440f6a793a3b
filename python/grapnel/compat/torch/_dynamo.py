"""`torch.compile` and `torch._dynamo`: Grapnel's compiler under the names of three years of PyTorch.

A backend object is called once for every graph that it is given, so its counts are counts of Grapnel's graphs. What has no meaning here (guards,
bytecode, most keys of config) is accepted and listed by `ignored()`.
"""
import collections
import contextlib
import functools
import inspect
import re
import threading
import tomllib
import warnings
import weakref
from pathlib import Path

import grapnel
from grapnel.compat._missing import NotOffered, Placeholder, ignore, module
from grapnel.compat.torch import top
from grapnel.compat.torch._graph import GraphModule, normalize_gm

_BACKENDS = {"eager": "eager", "aot_eager": "aot_eager", "inductor": "fused", "aot_eager_decomp_partition": "aot_eager"}


class RecompileError(RuntimeError):
    """A second graph was needed while config.error_on_recompile is set."""


class RunWith:
    """What a backend of the user's returns to have its graph run by one of Grapnel's."""

    def __init__(self, graph, backend):
        self.graph, self.backend = graph, backend

    def __call__(self, *inputs):
        return self.graph(*inputs)


class _Adapter:
    """A backend object of PyTorch's as Grapnel calls one: backend(graph, inputs) -> name of a backend, or a function of the inputs."""

    def __init__(self, backend):
        self.backend = backend

    def __call__(self, graph, inputs):
        made = self.backend(GraphModule(graph), list(inputs))
        if isinstance(made, RunWith):
            return made.backend
        owner = getattr(made, "__self__", made)
        if isinstance(owner, GraphModule):
            return "eager"

        def run(*inputs):
            out = made(*inputs)
            return list(out) if isinstance(out, (tuple, list)) else [out]

        return run


_adapters = {}  # id of a backend object -> (the object, its adapter): the compiler tells backends apart by identity


def _adapter_of(backend):
    return _adapters.setdefault(id(backend), (backend, _Adapter(backend)))[1]


def _backend_of(backend):
    if isinstance(backend, Placeholder):
        raise NotOffered(backend._name)
    if isinstance(backend, str):
        if backend not in _BACKENDS:
            raise NotOffered(f"torch.compile(backend={backend!r})")
        return _BACKENDS[backend]
    if hasattr(backend, "compiler_fn"):
        backend = backend.compiler_fn
    return _adapter_of(backend)


class _Probe:
    """Given to a compiler function instead of a graph, to learn what it asks for."""

    __name__ = "backward pass"


class _Named:
    """A backend of Grapnel's as an object, so that its graphs can be counted where a second one is refused."""

    def __init__(self, name):
        self.name, self.graphs = name, 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        if config.error_on_recompile and self.graphs > 1:
            raise RecompileError("a compiled backward pass needed another graph although error_on_recompile is set")
        return self.name


class _Options(dict):
    """What torch.compile was asked for."""


def _options(backend, fullgraph, dynamic, mode=None, options=None):
    for name, value in {"dynamic": dynamic, "mode": mode, "options": options}.items():
        if value is not None:
            ignore(f"torch.compile({name}=)")
    return _Options(backend=_backend_of(backend), fullgraph=bool(fullgraph))


def _refuse_recompiling(before, stats):
    if config.error_on_recompile and before and stats.graphs > before:
        reasons = "; ".join(str(reason) for reason in stats.miss_reasons)
        raise RecompileError(f"another graph was needed although error_on_recompile is set: {reasons}")


def _compile_function(function, options):
    compiled = grapnel.compile(function, **options)

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        _inside.depth = getattr(_inside, "depth", 0) + 1
        try:
            return run(*args, **kwargs)
        finally:
            _inside.depth -= 1

    def run(*args, **kwargs):
        if not config.error_on_recompile:
            return compiled(*args, **kwargs)
        before = compiled.stats().graphs
        out = compiled(*args, **kwargs)
        _refuse_recompiling(before, compiled.stats())
        return out

    call.__wrapped__ = call._torchdynamo_orig_callable = function
    call.stats = compiled.stats
    _live.add(call)
    return call


_inside = threading.local()  # in how many compiled functions a thread is
_live = weakref.WeakSet()  # compiled functions and backward scopes, for counters

class OptimizedModule(grapnel.nn.Module):
    """A compiled module. As in PyTorch it is a module itself, with the hooks that modules have."""

    def __init__(self, inner, options):
        super().__init__()
        self._orig_mod = inner
        self._compiled = _compile_function(inner, options)

    def __call__(self, *args, **kwargs):
        if _nn_hooks.has_global_hooks():
            warnings.warn(_in_their_words("hooks on all modules also see the compiled module"), stacklevel=2)
        return super().__call__(*args, **kwargs)

    def forward(self, *args, **kwargs):
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name):
        if name == "_orig_mod":
            raise AttributeError(name)
        return getattr(self._orig_mod, name)


def _compile_module(self, *, backend="inductor", fullgraph=False, dynamic=None, mode=None, options=None):
    """Module.compile(): from now on the module's own calls are compiled."""
    plain = type(self)
    compiled = _compile_function(functools.partial(plain.__call__, self), _options(backend, fullgraph, dynamic, mode, options))
    self.__class__ = type(plain.__name__, (plain,), {"__call__": lambda self, *args, **kwargs: compiled(*args, **kwargs), "__module__": plain.__module__})


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """torch.compile: of a function, of a module, or as a decorator."""
    wanted = _options(backend, fullgraph, dynamic, mode, options)
    if model is None:
        return lambda target: compile(target, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
    if disable:
        return model
    if isinstance(model, _Probe):
        return wanted
    if isinstance(model, grapnel.nn.Module):
        return OptimizedModule(model, wanted)
    return _compile_function(model, wanted)


def optimize(backend="inductor", *, nopython=False, dynamic=None, **ignored_here):
    """torch._dynamo.optimize, the older spelling."""
    return lambda target: compile(target, backend=backend, fullgraph=nopython, dynamic=dynamic)


# --- compiled backward passes ---


class _Backward:
    """A scope in which backward passes are compiled as `compiler_fn` says."""

    def __init__(self, compiler_fn, dynamic=True, **ignored_here):
        options = compiler_fn(_Probe())
        if isinstance(options, _Probe):
            options = _Options(backend="eager", fullgraph=False)
        if not isinstance(options, _Options):
            raise NotOffered("torch._dynamo.compiled_autograd with a compiler that is not torch.compile")
        backend = options["backend"]
        self.scope = grapnel.CompiledBackward(**options | {"backend": _Named(backend) if isinstance(backend, str) else backend})

    def stats(self):
        return self.scope.stats()

    def __enter__(self):
        self.scope.__enter__()
        _live.add(self)
        return self

    def __exit__(self, *error):
        return self.scope.__exit__(*error)


class _Counters(collections.abc.Mapping):
    """torch._dynamo.utils.counters: what can be told from Grapnel's own statistics, and nothing else."""

    def __getitem__(self, key):
        if key != "compiled_autograd":
            raise NotOffered(f"torch._dynamo.utils.counters[{key!r}]")
        graphs = sum(scope.stats().graphs for scope in _live if isinstance(scope, _Backward))
        return {"captures": graphs, "compiles": graphs}

    def __iter__(self):
        return iter(("compiled_autograd",))

    def __len__(self):
        return 1

    def clear(self):
        ignore("torch._dynamo.utils.counters.clear")


# --- settings ---


class _Patch(contextlib.ContextDecorator):
    def __init__(self, owner, changes):
        self.owner, self.changes, self.before = owner, changes, []

    def __enter__(self):
        self.before.append({key: self.owner.__dict__.get(key, _Patch) for key in self.changes})
        for key, value in self.changes.items():
            setattr(self.owner, key, value)

    def __exit__(self, *error):
        for key, value in self.before.pop().items():
            if value is _Patch:
                self.owner.__dict__.pop(key, None)
            else:
                self.owner.__dict__[key] = value

    def __call__(self, target):
        if not isinstance(target, type):
            return super().__call__(target)
        for name, value in list(vars(target).items()):
            if name.startswith("test") and callable(value):
                setattr(target, name, self(value))
        return target


def make_config(name, **known):
    """A module of settings: all can be set, and all but the known ones are ignored."""
    settings = module(name, **known)

    class Settings(type(settings)):
        def __setattr__(self, key, value):
            if key not in known and not key.startswith("_"):
                ignore(f"{name}.{key}")
            super().__setattr__(key, value)

    settings.__class__ = Settings
    settings.__dict__["patch"] = lambda arg=None, value=None, **changes: _Patch(
        settings, {arg: value} if isinstance(arg, str) else {**(arg or {}), **changes})
    return settings


# --- words ---

Unsupported = grapnel.GraphBreak
_WORDS = tomllib.loads((Path(__file__).parent / "_wording.toml").read_text())["word"]


def _in_their_words(text):
    """A message of ours, and in brackets what PyTorch calls it."""
    words = [found.expand(row["there"]) for row in _WORDS if (found := re.search(row["here"], text))]
    return f"{text} [{' '.join(words)}]" if words else text


CHANGES = [(grapnel.nn.Module, "compile", _compile_module), (grapnel.Error, "__str__", lambda error: _in_their_words(RuntimeError.__str__(error)))]


# --- counting ---


class CompileCounter:
    """A backend that counts the graphs it is given, and runs them as they are."""

    def __init__(self):
        self.clear()

    def __call__(self, gm, example_inputs):
        self.frame_count += 1
        self.op_count += len(gm.instructions())
        return gm.forward

    def clear(self):
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """Counts the graphs, and has them run by another backend."""

    def __init__(self, backend):
        self.backend = backend
        super().__init__()

    def __call__(self, gm, example_inputs):
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        inner = _backend_of(self.backend)
        return RunWith(gm, inner) if isinstance(inner, str) else self.backend(gm, example_inputs)

    def clear(self):
        super().clear()
        self.graphs = []


class EagerAndRecordGraphs:
    """A backend that keeps the graphs it is given."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward


def reset():
    """Forgets all compiled graphs."""
    grapnel.reset_compile_cache()


def disable(fn=None, recursive=True, reason=None, **ignored_here):
    """A function that is not compiled: where nothing is being compiled, that is the function."""
    if fn is None:
        return lambda target: disable(target)

    @functools.wraps(fn)
    def call(*args, **kwargs):
        if getattr(_inside, "depth", 0):
            raise NotOffered("torch._dynamo.disable inside of a compiled function")
        return fn(*args, **kwargs)

    return call if inspect.isfunction(fn) or inspect.ismethod(fn) else fn


def _run(backend):
    return lambda graph, inputs=None: RunWith(graph, backend)


def inductor_compile(gm, example_inputs, options=None):
    """torch._inductor.compile: the graph, to be run with fused kernels."""
    return RunWith(gm, "fused")


top.compile = compile
config = make_config("torch._dynamo.config", error_on_recompile=False)
_names = dict(optimize=optimize, reset=reset, disable=disable, graph_break=lambda msg="": None)
module("torch._dynamo", **_names)
module("torch._dynamo.exc", Unsupported=Unsupported, RecompileError=RecompileError)
module("torch._dynamo.testing", CompileCounter=CompileCounter, CompileCounterWithBackend=CompileCounterWithBackend,
       EagerAndRecordGraphs=EagerAndRecordGraphs, normalize_gm=normalize_gm, skipIfNotPy311=lambda f: f, unsupported=None)
module("torch._dynamo.utils", counters=_Counters())
module("torch._dynamo.compiled_autograd", _enable=_Backward, enable=_Backward, reset=reset)
module("torch._inductor", compile=inductor_compile)
make_config("torch._inductor.config")
module("torch._functorch")
make_config("torch._functorch.config")
module("torch.compiler", compile=compile, reset=reset, disable=disable, is_compiling=lambda: False)

from grapnel.compat.torch import _nn_hooks, _testing  # noqa: E402


class TestCase(_testing.TestCase):
    """Starts and ends every test with an empty cache."""

    def setUp(self):
        super().setUp()
        reset()

    def tearDown(self):
        reset()
        super().tearDown()


module("torch._dynamo.eval_frame", OptimizedModule=OptimizedModule)
for _name in ("torch._dynamo.test_case", "torch._inductor.test_case"):
    module(_name, TestCase=TestCase, run_tests=_testing.run_tests)
