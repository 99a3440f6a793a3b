"""Names of PyTorch: those that are offered, and stand-ins for all others.

A test file imports many names that no test of interest uses. So every name can be imported, and used as a decorator or a base class; using one
inside a test ends that test as `NotOffered: NAME`. What runs while a file is imported is under `lenient()`: there, calls of stand-ins give
stand-ins, and a stand-in is false.
"""
import contextlib
import functools
import importlib.abc
import importlib.machinery
import re
import sys
import types
import unittest

ROOTS = ("torch", "functorch")
_MARK = "(not offered)"
_MARKED = re.compile(r"((?:" + "|".join(ROOTS) + r")\b[\w.\[\]]*) \(not offered\)")
modules = {}  # name -> Shim: what is offered, whether or not it was imported yet
_ignored = {}  # name -> how often it was accepted although it means nothing here


class NotOffered(BaseException):
    """A name that PyTorch has and Grapnel does not was used. No `except Exception` of a test hides it."""


def named_in(text):
    """The name that an error of Python's or of a binding complains about where it met a stand-in, or None."""
    found = _MARKED.search(text)
    return found and found[1]


class _State:
    lenient = 0


@contextlib.contextmanager
def lenient():
    """Inside, stand-ins may be called and asked: a file is being imported."""
    _State.lenient += 1
    try:
        yield
    finally:
        _State.lenient -= 1


def ignore(name):
    """Notes that something was accepted that has no meaning here."""
    _ignored[name] = _ignored.get(name, 0) + 1


def ignored():
    """What was accepted without meaning so far: name -> how often."""
    return dict(sorted(_ignored.items()))


def _marked(target, name):
    """A function or class that was decorated with a stand-in: it ends as not offered when it is run."""
    if isinstance(target, type):
        target._not_offered = name
        return target

    @functools.wraps(target)
    def run(*args, **kwargs):
        raise NotOffered(name)

    run._not_offered = name
    return run


class _Refusing(type):
    """The type of classes whose base is not offered: they have none of its methods."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        Placeholder(cls._not_offered)._used()
        return Placeholder(f"{cls._not_offered}.{name}")


class Placeholder:
    """Stands for a name that is not offered. Each name has a type of its own, so that whoever refuses an argument of a wrong type says which."""

    _types = {}

    def __new__(cls, name):
        if name not in cls._types:
            cls._types[name] = type(f"{name} {_MARK}", (Placeholder,), {"__module__": "grapnel.compat", "_types": {}})
        return object.__new__(cls._types[name])

    def __init__(self, name):
        self.__dict__["_name"] = name
        self.__dict__["__name__"] = name.rpartition(".")[2]
        self.__dict__["__qualname__"] = self.__dict__["__name__"]

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self._name}.{name}")

    def __setattr__(self, name, value):
        self._used()
        self.__dict__[name] = value

    def __repr__(self):
        return f"<not offered: {self._name}>"

    def _used(self):
        if not _State.lenient:
            raise NotOffered(self._name)

    def __call__(self, *args, **kwargs):
        self._used()
        if len(args) == 1 and not kwargs and (isinstance(args[0], (types.FunctionType, type))):
            return _marked(args[0], self._name)
        return Placeholder(self._name)

    def __mro_entries__(self, bases):
        """What a class that is made while a file is imported has in the place of this base."""
        self._used()
        name = self._name

        def refuse(self, *args, **kwargs):
            raise NotOffered(name)

        parts = {"_not_offered": name, "__module__": __name__}
        if "Test" in self.__dict__["__name__"]:
            return (type(self.__dict__["__name__"], (unittest.TestCase,), parts | {"setUp": refuse}),)
        return (_Refusing(self.__dict__["__name__"], (), parts | {"__init__": refuse}),)

    def __instancecheck__(self, instance):
        self._used()
        return False

    def __subclasscheck__(self, subclass):
        self._used()
        return False

    def __bool__(self):
        self._used()
        return False

    def __iter__(self):
        self._used()
        return iter(())

    def __len__(self):
        self._used()
        return 0

    def __index__(self):
        self._used()
        return 0

    def __or__(self, other):  # of annotations
        self._used()
        return self

    __ror__ = __or__

    def __add__(self, other):  # of lists of samples: nothing is added
        self._used()
        return other if isinstance(other, (list, tuple)) else self

    __radd__ = __add__

    def __enter__(self):
        self._used()
        return self

    def __exit__(self, *error):
        pass

    def _compared(self, other):
        self._used()
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __getitem__(self, key):
        self._used()
        return Placeholder(f"{self._name}[...]")


class Shim(types.ModuleType):
    """A module of names of PyTorch. What it does not have itself comes from `sources`; all else is a stand-in."""

    def __init__(self, name, sources=(), hidden=(), **names):
        super().__init__(name)
        self.__path__ = []  # a package: anything may be imported from below it
        self.__dict__.update(_sources=list(sources), _hidden=frozenset(hidden))
        self.__dict__.update(names)

    def __getattr__(self, name):
        below = f"{self.__name__}.{name}"
        if name.startswith("__") and name.endswith("__") and below not in modules:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'", name=name, obj=self)
        if below in modules:
            return modules[below]
        if not name.startswith("_") and name not in self._hidden:
            for source in self._sources:
                found = getattr(source, name, None)
                if found is not None:
                    return found
        return Placeholder(below)


def module(name, sources=(), hidden=(), **names):
    """Offers a module of PyTorch's with these names."""
    shim = modules[name] = Shim(name, sources, hidden, **names)
    parent, _, last = name.rpartition(".")
    if parent in modules:
        modules[parent].__dict__[last] = shim
    return shim


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `torch` and everything below it."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in ROOTS:
            return None
        parent, _, last = fullname.rpartition(".")
        if fullname not in modules and parent in modules:
            if not isinstance(getattr(modules[parent], last), (types.ModuleType, Placeholder)):
                return None  # a function or class is no module
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return modules.get(spec.name) or Shim(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def install(changes):
    """From now on `import torch` gives what is offered here, and types look as they do there. Returns what ends it."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ROOTS:
            raise ImportError(f"grapnel.compat: '{name}' is imported already. Install the names before anything imports torch.")
    finder = Finder()
    before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    sys.meta_path.insert(0, finder)

    def end():
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.partition(".")[0] in ROOTS:
                del sys.modules[name]
        for owner, name, value in before:
            delattr(owner, name) if value is None else setattr(owner, name, value)

    return end
