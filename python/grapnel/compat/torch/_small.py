"""Names that need a line or two each: older spellings, settings without meaning here, and small helpers of tests."""
import contextlib
import gc
import io
import os
import tempfile
import warnings

import grapnel
from grapnel.compat._missing import NotOffered, Shim, ignore, module, modules
from grapnel.compat.torch import _dynamo, _testing
from grapnel.compat.torch._parametrize import always, dtypes, skip


def _names(name, **names):
    """More names for a module that is offered already."""
    modules[name].__dict__.update(names)


# --- tensors ---


def _legacy(dtype):
    """torch.LongTensor and the like: of numbers, or of a size."""

    def make(*given):
        if given and all(isinstance(size, int) for size in given):
            return grapnel.zeros(list(given), dtype=dtype)
        return grapnel.tensor(*given, dtype=dtype) if given else grapnel.zeros([0], dtype=dtype)

    return make


for _name, _dtype in {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Int": "int32", "Long": "int64",
                      "Byte": "uint8", "Bool": "bool"}.items():
    _names("torch", **{f"{_name}Tensor": _legacy(getattr(grapnel, _dtype))})


def _check(cond, message=None):
    """torch._check: an error where a condition does not hold."""
    if not cond:
        raise RuntimeError(message() if message else "Expected cond to be True, but got False.")


_names("torch", _check=_check, is_inference=lambda t: t.is_inference())
module("torch.utils.data", [grapnel.data])


# --- autograd ---


class _Setting(contextlib.ContextDecorator):
    """A setting that may be called or entered, and changes nothing."""

    def __init__(self, name):
        ignore(name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def _setting(name):
    return lambda *args, **kwargs: _Setting(name)


_NOT_CHECKED = ("check_forward_ad", "check_batched_forward_grad")


def _gradcheck_of(ours):
    def check(fn, inputs, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, **options):
        """What of gradcheck compares gradients with finite differences; the rest of its options is listed as ignored."""
        for name in [name for name in _NOT_CHECKED if options.get(name)]:
            raise NotOffered(f"torch.autograd.gradcheck({name}=)")
        for name in options:
            ignore(f"torch.autograd.gradcheck({name}=)")
        return ours(fn, inputs, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)

    return check


gradcheck, _second = _gradcheck_of(grapnel.autograd.gradcheck), _gradcheck_of(grapnel.autograd.gradgradcheck)


def gradgradcheck(fn, inputs, grad_outputs=None, *args, **options):
    """gradcheck of gradients; the gradients that it starts from are its own."""
    if grad_outputs is not None:
        ignore("torch.autograd.gradgradcheck(grad_outputs=)")
    return _second(fn, inputs, *args, **options)


class _Gradcheck(Shim):
    """torch.autograd.gradcheck is a module in files that import from it, and the function in others."""

    def __call__(self, *args, **kwargs):
        return gradcheck(*args, **kwargs)


module("torch.autograd.gradcheck", gradcheck=gradcheck, gradgradcheck=gradgradcheck).__class__ = _Gradcheck
_names("torch.autograd", _force_original_view_tracking=_setting("torch.autograd._force_original_view_tracking"), gradgradcheck=gradgradcheck,
       kineto_available=lambda: False)


# --- the compiler ---


def same(ref, res, fp64_ref=None, cos_similarity=False, tol=1e-4, equal_nan=False, exact_dtype=True, **ignored_here):
    """Whether two nested results agree."""
    try:
        _testing.assert_close(res, ref, rtol=tol, atol=tol, equal_nan=equal_nan, check_dtype=exact_dtype)
    except AssertionError:
        return False
    return True


def standard_test(self, fn, nargs, expected_ops=None, expected_ops_dynamic=None, expected_frame_count=1):
    """A function gives the same compiled, without a break; its graphs, and the steps in them, are as many as the test says."""
    _dynamo.reset()
    count, given = _dynamo.CompileCounter(), [grapnel.randn(10, 10) for _ in range(nargs)]
    expected = fn(*(t.clone() for t in given))
    got = _dynamo.compile(fn, backend=count, fullgraph=True)(*(t.clone() for t in given))
    self.assertTrue(same(expected, got), f"{got} is not {expected}")
    self.assertEqual(count.frame_count, expected_frame_count)
    if expected_ops is not None:
        self.assertEqual(count.op_count, expected_ops)


def _has_no_sizes(name):
    """Of dynamic sizes: every size has its graph here."""

    def mark(*args, **kwargs):
        ignore(name)

    return mark


_names("torch._dynamo", optimize_assert=lambda backend, **options: _dynamo.optimize(backend, nopython=True),
       **{name: _has_no_sizes(f"torch._dynamo.{name}") for name in ("mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked")})
module("torch._dynamo.decorators", **{name: getattr(modules["torch._dynamo"], name) for name in ("mark_unbacked", "mark_dynamic")})
_names("torch._dynamo.testing", same=same, standard_test=standard_test, reset=_dynamo.reset, optimize_assert=modules["torch._dynamo"].optimize_assert)
_names("torch._dynamo.utils", same=same, ifdynstaticdefault=lambda static, dynamic: static)
_dynamo.make_config("torch.compiler.config")
_dynamo.make_config("torch._dynamo.guards", guard_manager_testing_hook_fn=None)  # there are no guards
_dynamo.config.__dict__["assume_static_by_default"] = True


# --- tests ---


@contextlib.contextmanager
def disable_gc():
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def suppress_warnings(test):
    """A test that may warn."""

    def run(*args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return test(*args, **kwargs)

    run.__name__, run.__dict__ = test.__name__, dict(test.__dict__)
    return run


def make_dynamo_test(test=None):
    """A test that holds as it is, and compiled without a break."""
    if test is None:
        return make_dynamo_test

    def run(self, **kwargs):
        test(self, **kwargs)
        _dynamo.compile(lambda: test(self, **kwargs), backend="eager", fullgraph=True)()

    run.__name__, run.__dict__ = test.__name__, dict(test.__dict__)
    return run


@contextlib.contextmanager
def TemporaryFileName(*args, **kwargs):  # noqa: N802
    with tempfile.NamedTemporaryFile(*args, delete=False, **kwargs) as file:
        pass
    try:
        yield file.name
    finally:
        os.unlink(file.name)


def only_on(devices):
    """A test for some kinds of devices."""
    return always if "cpu" in ([devices] if isinstance(devices, str) else devices) else skip(f"needs one of {devices}")


_names("torch.testing._internal.common_utils", gradcheck=gradcheck, gradgradcheck=gradgradcheck, disable_gc=disable_gc,
       suppress_warnings=suppress_warnings, make_dynamo_test=make_dynamo_test, TemporaryFileName=TemporaryFileName, BytesIOContext=io.BytesIO,
       NestedTensorTestCase=_testing.TestCase, skipIfNoSciPy=skip("needs SciPy"), serialTest=lambda *args: always,
       set_warn_always_context=_setting("torch.testing._internal.common_utils.set_warn_always_context"))
_names("torch.testing._internal.common_device_type", onlyOn=only_on, dtypesIfCPU=dtypes, onlyAccelerator=skip("needs a GPU"),
       **{name: always for name in ("expectedFailureMPS", "expectedFailureXLA", "expectedFailureMeta", "skipXPUIf", "skipMPSIf", "skipXLA",
                                              "skipCUDAIfNoMagma", "skipCPUIfNoLapack", "skipMPS", "expectedFailureMPSComplex")})
