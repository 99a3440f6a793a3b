"""Fixtures of all tests."""
import contextlib
import os

import pytest

import grapnel as g

# What hooks do is the same in eager mode, in a compiled function, with compiled backward passes, and with both.
MODES = ["eager", "captured", "compiled_backward", "both"]


@pytest.fixture(scope="module")
def names_installed():
    """`import torch` is grapnel.compat.torch while the tests of a file run."""
    from grapnel import compat

    compat.install()
    yield
    compat.uninstall()


@pytest.fixture
def torch(names_installed):
    """What `import torch` gives, with nothing compiled yet."""
    import torch
    import torch._dynamo.testing

    torch._dynamo.reset()
    yield torch
    torch._dynamo.reset()


def pytest_configure(config):
    config.addinivalue_line("markers", "eager_only(why): the test is about what other modes do not have")
    config.addinivalue_line("markers", "flat_memory: the test looks at the memory of the process, where sanitizers keep what was freed")


def pytest_collection_modifyitems(items):
    if os.environ.get("GRAPNEL_SANITIZED"):
        for item in items:
            if item.get_closest_marker("flat_memory"):
                item.add_marker(pytest.mark.skip(reason="a sanitizer keeps what was freed"))


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__.startswith("test_eager_"):
        metafunc.fixturenames.append("mode")
        metafunc.parametrize("mode", ["eager"] if metafunc.definition.get_closest_marker("eager_only") else MODES)


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs the test in its mode."""
    mode = pyfuncitem.callspec.params.get("mode", "eager") if hasattr(pyfuncitem, "callspec") else "eager"
    if mode in ("captured", "both"):
        pyfuncitem.obj = g.compile(pyfuncitem.obj)
    with g.CompiledBackward() if mode in ("compiled_backward", "both") else contextlib.nullcontext():
        yield
