"""Tests with arguments: parametrised ones, those for every type, and those for every device, of which there is one."""
import functools
import inspect
import itertools
import unittest

from grapnel.compat._missing import Placeholder, ignore


def parametrize(arg_str, arg_values, name_fn=None):
    """A test with arguments: one test per value, once `instantiate_parametrized_tests` has seen its class."""
    names = [n.strip() for n in arg_str.split(",")] if isinstance(arg_str, str) else list(arg_str)

    def mark(function):
        cases = []
        for value in arg_values:
            given = value if len(names) > 1 or isinstance(value, Subtest) else (value,)
            if isinstance(value, Subtest):
                given, label = value.values, value.name
            elif name_fn is not None:
                label = name_fn(*given)
            else:
                label = "_".join(f"{n}_{_label(v)}" for n, v in zip(names, given))
            cases.append((label, dict(zip(names, given))))
        function.__dict__.setdefault("_cases", []).append(cases)
        return function

    return mark


class Subtest:
    def __init__(self, arg_values, name=None, decorators=()):
        self.values = tuple(arg_values) if isinstance(arg_values, (tuple, list)) else (arg_values,)
        self.name = name or "_".join(map(_label, self.values))


def _label(value):
    text = getattr(value, "__name__", None) or str(value)
    return "".join(c if c.isalnum() else "_" for c in text)


def instantiate_parametrized_tests(cls):
    for name, function in list(cls.__dict__.items()):
        cases = getattr(function, "_cases", None)
        if not cases:
            continue
        delattr(cls, name)
        for chosen in itertools.product(*reversed(cases)):
            values = {k: v for _, given in chosen for k, v in given.items()}
            setattr(cls, "_".join([name, *(label for label, _ in chosen)]), _with(function, values))
    return cls


def _with(function, values):
    @functools.wraps(function)
    def run(self, *args, **kwargs):
        return function(self, *args, **values, **kwargs)

    run.__dict__.pop("_cases", None)
    return run


def swap(values):
    """A test once per value of a setting that has no meaning here."""

    def mark(function):
        @functools.wraps(function)
        def run(self, *args, swap, **kwargs):
            ignore("torch.__future__.set_swap_module_params_on_conversion")
            return function(self, *args, **kwargs)

        return parametrize("swap", values)(run)

    return mark


# --- tests for every device, of which there is one ---


def dtypes(*types):
    """A test with an argument `dtype`, or `dtypes` where tuples of them are given: one test per type or tuple."""

    def mark(function):
        function._dtypes = types[0] if len(types) == 1 and isinstance(types[0], list) else types
        return function

    return mark


def _type_label(dtype):
    return dtype._name.rpartition(".")[2] if isinstance(dtype, Placeholder) else dtype.name


def instantiate_device_type_tests(generic, scope, *args, **kwargs):
    """Puts the tests of a class with an argument `device` into a class for the CPU."""
    name = f"{generic.__name__}CPU"
    made = type(name, (generic,), {"__module__": generic.__module__, "__qualname__": name, "device_type": "cpu"})
    for test in [n for n in dir(generic) if n.startswith("test") and callable(getattr(generic, n))]:
        function = getattr(generic, test)
        setattr(made, test, None)  # hides that of the generic class
        wanted = inspect.signature(function).parameters
        given = {"device": "cpu"} if "device" in wanted else {}
        for dtype in getattr(function, "_dtypes", (None,)):
            chosen, label = dict(given), "_cpu"
            if dtype is not None and (name := "dtypes" if "dtypes" in wanted else "dtype") in wanted:
                chosen[name] = dtype
                label += "".join(f"_{_type_label(t)}" for t in (dtype if isinstance(dtype, (tuple, list)) else (dtype,)))
            one = _with(function, chosen)
            one._cases = getattr(function, "_cases", [])
            setattr(made, test + (label if given else ""), one)
    instantiate_parametrized_tests(made)
    scope.pop(generic.__name__, None)
    scope[name] = made


# --- what a test needs ---


def always(*args, **kwargs):
    """A decorator, with or without arguments, for what is no question here: the test runs."""
    if len(args) == 1 and not kwargs and (inspect.isfunction(args[0]) or inspect.isclass(args[0])):
        return args[0]
    return lambda target: target


def skip(reason):
    def decorate(*args, **kwargs):
        if len(args) == 1 and not kwargs and (inspect.isfunction(args[0]) or inspect.isclass(args[0])):
            return unittest.skip(reason)(args[0])
        return unittest.skip(reason)

    return decorate
