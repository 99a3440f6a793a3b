"""One test file in a process of its own: says on a pipe which test begins, and how each one ended."""
import functools
import importlib.util
import inspect
import json
import os
import re
import resource
import sys
import time
import traceback
import unittest
import unittest.mock  # noqa: F401  (files find it through torch)
from pathlib import Path

import grapnel
from grapnel import compat
from grapnel.compat import _missing

_MISSING_FROM = {"Tensor": "torch.Tensor", "Parameter": "torch.Tensor", "RemovableHandle": "torch.utils.hooks.RemovableHandle",
                 "Node": "torch.autograd.graph.Node", "GraphModule": "torch.fx.GraphModule"}


class Pipe:
    """Says something to the runner. A process that a test forked and that comes back here must not run the other tests a second time."""

    def __init__(self, number):
        self.owner, self.file = os.getpid(), os.fdopen(number, "w", buffering=1)

    def __call__(self, **what):
        if os.getpid() != self.owner:
            os._exit(1)
        print(json.dumps(what), file=self.file, flush=True)


def not_offered(error):
    """The name of PyTorch's whose absence an exception tells of, or None."""
    seen, asserted = set(), False  # what a test expected to be raised, and was not as expected, is its business
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, _missing.NotOffered):
            return str(error)
        asserted |= isinstance(error, AssertionError)
        found = _missing.named_in(str(error)) if isinstance(error, Exception) and not isinstance(error, AssertionError) else None
        if asserted:
            pass
        elif isinstance(error, AttributeError) and error.name:
            found = _attribute(error.obj, error.name)
        elif isinstance(error, TypeError) and not found:
            found = _arguments(error)
        elif type(error) is grapnel.Error and not found:
            found = next((there.format(*match.groups()) for here, there in _THINGS if (match := re.match(here, str(error)))), None)
        if found:
            return found
        error = error.__cause__ or error.__context__
    return None


def _attribute(obj, name):
    if isinstance(obj, _missing.Shim):
        return f"{obj.__name__}.{name}"
    for cls in obj.__mro__ if isinstance(obj, type) else type(obj).__mro__:
        if cls.__module__.startswith("grapnel") or cls.__name__ in _MISSING_FROM:
            return f"{_MISSING_FROM.get(cls.__name__) or 'torch.nn.' + cls.__name__}.{name}"
    return None


# What the library has none of, by the first words of its message.
_THINGS = [(r"device: there is no device '([\w:]+)' here", "torch.device('{}')")]
_NO_SIGNATURE = re.compile(r"(\w+)\(\): incompatible function arguments\..*\nInvoked with types: (.*)", re.S)
_NO_KEYWORD = re.compile(r"(\w+)(?:\.__init__)?(?:\(\)|:) got an unexpected keyword argument '(\w+)'")


def _arguments(error):
    """What a call asks of a function of ours that it does not take. Where our own code is the caller, it is our mistake and a failure."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    inner = frame.tb_frame.f_globals.get("__name__", "") if frame else ""
    if match := _NO_SIGNATURE.match(str(error)):
        return None if inner.startswith("grapnel") else f"torch.{match[1]}({_short(match[2])})"
    if match := _NO_KEYWORD.match(str(error)):
        owner = next((o for o in (grapnel.nn.functional, grapnel.nn, grapnel, grapnel.autograd, grapnel.optim, grapnel.optim.lr_scheduler,
                                  grapnel.data) if hasattr(o, match[1])), None)
        if owner is not None:
            return f"{owner.__name__.replace('grapnel.data', 'torch.utils.data').replace('grapnel', 'torch')}.{match[1]}({match[2]}=)"
    return None


def _short(types):
    """Types of arguments as nanobind writes them, with keywords only by their names."""
    given, _, keywords = types.partition("kwargs = {")
    return ", ".join([name.rpartition(".")[2] for name in given.split(", ") if name.strip()] + [f"{k}=" for k in re.findall(r"(\w+):", keywords)])


def kind_of_import(error):
    """(kind, detail) of a file that could not be read to its end. Files leave early when what they test is not there."""
    if missing := not_offered(error):
        return "not offered", missing
    if isinstance(error, unittest.SkipTest) or isinstance(error, SystemExit) and not error.code:
        return "skip", str(error) or "it leaves while it is imported"
    return "error", f"cannot be imported: {reason_of(error)}"


def reason_of(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]


class Result(unittest.TestResult):
    """Sends one line when a test begins and one when it has ended."""

    def __init__(self, send, texts):
        super().__init__()
        self.send, self.texts = send, texts
        self.outcome, self.ended = None, set()
        self.class_error = None

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.began = None, time.perf_counter()
        self.texts.met.clear()
        self.send(begin=name_of(test))

    def stopTest(self, test):
        super().stopTest(test)
        if self.outcome is None:
            self.outcome = ("text" if self.texts.met else "pass", "")
        self.ended.add(name_of(test))
        kind, detail, *more = self.outcome
        self.send(end=name_of(test), kind=kind, detail=detail, trace="".join(more), seconds=time.perf_counter() - self.began,
                  text=[text for _, text in self.texts.met])

    def worse(self, kind, error):
        """A failure after another one (in tearDown, in a later subtest) does not hide the first."""
        if self.outcome is None or self.outcome[0] == "skip":
            missing = not_offered(error)
            trace = "".join(traceback.format_exception(error))
            self.outcome = ("not offered", missing, trace) if missing else (kind, reason_of(error), trace)

    def addError(self, test, err):
        if isinstance(test, unittest.TestCase):
            self.worse("error", err[1])
        else:  # setUpClass
            self.class_error = err[1]

    def addFailure(self, test, err):
        self.worse("failure", err[1])

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.worse("failure" if issubclass(err[0], test.failureException) else "error", err[1])

    def addSkip(self, test, reason):
        if self.outcome is None:
            self.outcome = ("skip", reason)

    def addExpectedFailure(self, test, err):
        missing = not_offered(err[1])
        if missing:
            self.outcome = ("not offered", missing)

    def addUnexpectedSuccess(self, test):
        self.outcome = ("failure", "passes although the test says that it fails")


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}"


def tests_in(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_in(test)
        else:
            yield test


def load(path):
    """(tests of a file, what stopped it). While it is imported it may use names that are not there; the tests before such a name can be run."""
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    file = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = file
    tests, stopped = [], None
    with _missing.lenient():
        try:
            spec.loader.exec_module(file)
        except BaseException as error:  # noqa: BLE001  (whatever a file does, the runner goes on)
            stopped = error
        try:
            tests = list(tests_in(unittest.TestLoader().loadTestsFromModule(file)))  # with its load_tests, if it has one
        except BaseException as error:  # noqa: BLE001
            stopped = stopped or error
    return [t for t in tests if stopped is None or not wants_arguments(t)], stopped


def wants_arguments(test):
    """Whether a test is still to be made one for each device or parameter, which happens at the end of a file."""
    return bool(inspect.signature(getattr(test, test._testMethodName)).parameters)


def with_compiled_backward(test):
    plain = getattr(test, test._testMethodName)

    @functools.wraps(plain)
    def run(*args, **kwargs):
        with grapnel.CompiledBackward():
            return plain(*args, **kwargs)

    setattr(test, test._testMethodName, run)


def main(task, send):
    compat.install()
    from grapnel.compat.torch._testing import Texts

    Texts.allowed = frozenset(task["texts"])
    tests, stopped = load(task["file"])
    trace = "".join(traceback.format_exception(stopped)) if stopped else ""
    if stopped and not tests:
        send(broken=kind_of_import(stopped), trace=trace)
        return
    if task["only"]:
        tests = [t for t in tests if task["only"] in name_of(t)]
    named = {name_of(t): t for t in tests}  # a class that has two names in the file is one
    rest = [Path(task["file"]).name] if stopped else []  # stands for what of the file is not known
    send(tests=list(named) + rest)
    for name in rest:
        kind, detail = kind_of_import(stopped)
        send(end=name, kind=kind, detail=detail, trace=trace, seconds=0.0, text=[])
    classes = {}
    for test in named.values():
        if name_of(test) not in task["done"]:
            classes.setdefault(type(test), []).append(test)
    for cls, members in classes.items():
        result = Result(send, Texts)
        if marked := getattr(cls, "_not_offered", None):
            result.class_error = _missing.NotOffered(marked)
        else:
            if task["backward"] == "compiled":
                for test in members:
                    with_compiled_backward(test)
            unittest.TestSuite(list(members)).run(result)
        if result.class_error is not None:
            missing = not_offered(result.class_error)
            for test in members:
                if name_of(test) not in result.ended:
                    send(end=name_of(test), kind="not offered" if missing else "error", detail=missing or reason_of(result.class_error), trace="",
                         seconds=0.0, text=[])
    send(ignored=_missing.ignored())


def limit_memory():
    """A test that takes memory without end gets a MemoryError, instead of taking that of all others on the machine."""
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    resource.setrlimit(resource.RLIMIT_AS, (half, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    limit_memory()
    main(json.loads(sys.stdin.read()), Pipe(int(sys.argv[1])))
