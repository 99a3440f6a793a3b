"""compile(f) and what belongs to it: compiled backward passes, graphs to look at, and calls that recordings do not enter."""
import collections
import functools
import inspect
import operator
import types
import weakref

from grapnel import _core
from grapnel._core import Backend, Compiled, CompileStats, Graph, Lifted, Reason, Tensor  # noqa: F401
from grapnel._core import reset_compile_cache, set_hook_audit, set_replay_audit  # noqa: F401


_identities = {}  # of backends written in Python, by their addresses while they live


def _identity_of(backend):
    """A number that belongs to a callable for as long as it lives, or to a method of an object as long as that one lives."""
    method = isinstance(backend, types.MethodType)
    owner = backend.__self__ if method else backend
    key = id(owner), id(backend.__func__) if method else 0
    if key not in _identities:
        number = _core._next_identity()
        try:
            kept = weakref.ref(owner, lambda _: _identities.pop(key, None))
        except TypeError:
            kept = owner
        _identities[key] = number, kept
    return _identities[key][0]


def _options(backend="fused", fullgraph=False, dynamic=True, replay=False, numerics="exact", on_failure="fall_back"):
    """Checks what compile() and CompiledBackward() are asked for."""
    compiler, identity = None, 0
    if callable(backend):
        compiler, identity, backend = backend, _identity_of(backend), "fused"
    if isinstance(backend, str):
        if backend not in ("eager", "aot_eager", "fused"):
            raise ValueError(f"compile: there is no backend {backend!r}; there are 'eager', 'aot_eager', 'fused', and functions.")
        backend = getattr(Backend, backend)
    if numerics not in ("exact", "fast"):
        raise ValueError(f"compile: numerics is 'exact' or 'fast', got {numerics!r}.")
    if on_failure not in ("fall_back", "error"):
        raise ValueError(f"compile: on_failure is 'fall_back' or 'error', got {on_failure!r}.")
    return _core._CompileOptions(backend, bool(fullgraph), bool(dynamic), bool(replay), numerics == "fast", on_failure == "error", compiler, identity)


def _refuse_what_runs_later(function):
    """The body of a coroutine or a generator runs after the call has returned."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    for part in (inner, getattr(type(inner), "__call__", None)):
        for kind, test in (("a coroutine function", inspect.iscoroutinefunction), ("a generator function", inspect.isgeneratorfunction),
                           ("an asynchronous generator function", inspect.isasyncgenfunction)):
            if part is not None and test(part):
                name = getattr(inner, "__qualname__", type(inner).__qualname__)
                raise TypeError(f"compile: '{name}' is {kind}, whose body runs after the call has returned. Compile what it calls instead.")


def compile(function=None, *, backend="fused", fullgraph=False, dynamic=True, replay=False, numerics="exact", on_failure="fall_back"):
    """The same function, with its tensor arithmetic deferred, fused and cached. Also a decorator, with or without arguments.

    The body runs in every call: closures, counters, prints and hooks behave as always. With `fullgraph`, reading a value in the middle is an
    error. With `replay` the function is pure, and its body runs once per kind of arguments.
    """
    options = dict(backend=backend, fullgraph=fullgraph, dynamic=dynamic, replay=replay, numerics=numerics, on_failure=on_failure)
    if function is None:
        return lambda f: compile(f, **options)
    if not callable(function):
        raise TypeError(f"compile: expected a function or a module, got an object of type '{type(function).__name__}'.")
    _refuse_what_runs_later(function)
    compiled = _core._compile(function, _options(**options))
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(function, name):
            setattr(compiled, name, getattr(function, name))
    return compiled


class CompiledBackward:
    """Inside, backward passes are recorded and run as one graph, hooks included."""

    def __init__(self, *, backend="fused", fullgraph=False, dynamic=True, numerics="exact", on_failure="fall_back"):
        self._scopes = _core._CompiledBackward(_options(backend, fullgraph, dynamic, False, numerics, on_failure))

    def __enter__(self):
        self._scopes.enter()
        return self

    def __exit__(self, *error):
        self._scopes.leave()

    def stats(self):
        """What compiling has done so far."""
        return self._scopes.stats()

    def reset(self):
        """Forgets the statistics, and the graphs compiled in this scope."""
        self._scopes.reset()


# --- graphs to look at ---

GraphInstruction = collections.namedtuple("GraphInstruction", ["op", "inputs", "outputs", "attributes", "inplace", "hook", "site"])
GraphValue = collections.namedtuple("GraphValue", ["dtype", "shape", "constant"])
_core._set_graph_types(GraphInstruction, GraphValue)


def _as_tuple(result, what):
    if result is None:
        return ()
    if isinstance(result, Tensor):
        return (result,)
    if isinstance(result, (tuple, list)) and all(t is None or isinstance(t, Tensor) for t in result):
        return tuple(result)
    raise TypeError(f"{what}: the function returns a tensor, or a tuple or list of tensors, got an object of type '{type(result).__name__}'.")


def trace(function, *inputs):
    """What function(*inputs) would compute, as a Graph, without computing it. Nothing that it does to tensors is left."""
    return _core._trace(lambda tensors: _as_tuple(function(*tensors), "trace"), list(inputs))


def _run(self, *inputs):
    """Computes the outputs for other inputs of the same types: a tensor, or a tuple if there are several."""
    out = self._run(list(inputs))
    return out[0] if len(out) == 1 else out


Graph.run = Graph.__call__ = _run
Graph._repr_mimebundle_ = lambda self, **_: {"text/plain": str(self)}

# --- calls that recordings do not enter ---


class Opaque:
    """What opaque(f) returns."""

    __slots__ = ("func", "__weakref__")

    def __init__(self, func):
        self.func = func

    def __call__(self, *tensors):
        return _core._invoke(self.func, list(tensors), True)

    def __repr__(self):
        return f"opaque({self.func!r})"


def opaque(function):
    """Marks a hook or function as opaque: compiled code calls it when it runs, instead of recording what it computes."""
    if not callable(function):
        raise TypeError(f"opaque: expected a function, got an object of type '{type(function).__name__}'.")
    return function if isinstance(function, Opaque) else Opaque(function)


def invoke(function, *tensors):
    """function(*tensors) without gradient recording. A function that is being compiled or traced calls it when the graph runs; a compiled
    backward pass enters it. The result looks like the first tensor, and None stands for that tensor."""
    is_opaque = isinstance(function, Opaque)
    return _core._invoke(function.func if is_opaque else function, list(tensors), is_opaque)


class Declared:
    """What declared(f, ...) returns."""

    __slots__ = ("func", "identity", "constants", "lifted", "__weakref__")

    def __init__(self, func, identity, constants, lifted):
        self.func, self.identity, self.constants, self.lifted = func, identity, constants, lifted

    def __call__(self, *args):
        return self.func(*args)

    def __repr__(self):
        return f"declared({self.func!r})"


def _constant(value):
    """A constant as text that tells it from all others."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_constant, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_constant(k)}: {_constant(v)}' for k, v in value.items()))}}}"
    raise TypeError("declared: a constant is None, a bool, a number, a str, or a tuple, list or dict of these, got an object of type "
                    f"'{type(value).__name__}'; tensors and Lifted numbers belong in lift=.")


def declared(function, *constants, name=None, lift=()):
    """Marks a hook as declared: what it returns depends on its arguments, on these constants, and on the tensors and Lifted numbers in `lift`,
    which are read anew in every pass; on nothing else. Compiled passes then need not call it every time."""
    if not callable(function):
        raise TypeError(f"declared: expected a function, got an object of type '{type(function).__name__}'.")
    for value in lift:
        if not isinstance(value, (Tensor, Lifted)):
            raise TypeError(f"declared: lift holds tensors and Lifted numbers, got an object of type '{type(value).__name__}'.")
    code = getattr(function, "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else type(function).__module__
    own = getattr(function, "__qualname__", type(function).__qualname__)
    return Declared(function, f"{name or own} ({own}, {place})", _constant(constants), tuple(lift))


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _op = getattr(operator, _name)
    setattr(Lifted, f"__{_name}__", lambda self, other, op=_op: op(self.tensor(), other))
    setattr(Lifted, f"__r{_name}__", lambda self, other, op=_op: op(other, self.tensor()))
Lifted.__neg__ = lambda self: -self.tensor()


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) if pred, a tensor of one element, is true, else false_fn(*operands); a graph decides when it runs."""
    if not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*operands)
    single = True

    def branch(function):
        @functools.wraps(function)
        def call(*tensors):
            nonlocal single
            out = function(*tensors)
            single = isinstance(out, Tensor)
            return _as_tuple(out, "cond")

        return call

    operands = [operands] if isinstance(operands, Tensor) else list(operands)
    out = _core._cond(pred, branch(true_fn), branch(false_fn), operands)
    return out[0] if single else out


_core._set_marks(Opaque, Declared)
