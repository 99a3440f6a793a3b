"""`torch.testing`: comparing, parametrised tests, and the test cases that upstream's files derive from."""
import contextlib
import importlib.util
import math
import numbers
import unittest
from collections.abc import Mapping, Sequence

import grapnel
from grapnel.compat._missing import NotOffered, Placeholder, ignore, module
from grapnel.compat.torch._parametrize import (Subtest, always, dtypes, instantiate_device_type_tests, instantiate_parametrized_tests, parametrize,
                                               skip, swap)

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def _tolerances(dtypes, rtol, atol):
    """Those of the least exact type, unless both are given."""
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol are given together or not at all.")
    if rtol is not None:
        return rtol, atol
    known = [_TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in dtypes]
    return max(r for r, _ in known), max(a for _, a in known)


def _flat(t):
    values = t.detach().reshape([-1]).tolist()
    return values if isinstance(values, list) else [values]


def _compare_tensors(a, b, o):
    if tuple(a.shape) != tuple(b.shape):
        raise AssertionError(f"{o['at']}the shapes {tuple(a.shape)} and {tuple(b.shape)} differ.")
    if o["check_dtype"] and a.dtype is not b.dtype:
        raise AssertionError(f"{o['at']}the types {a.dtype} and {b.dtype} differ.")
    if o["check_stride"] and tuple(a.stride()) != tuple(b.stride()):
        raise AssertionError(f"{o['at']}the strides {tuple(a.stride())} and {tuple(b.stride())} differ.")
    rtol, atol = _tolerances((a.dtype, b.dtype), o["rtol"], o["atol"])
    wrong = [i for i, (x, y) in enumerate(zip(_flat(a), _flat(b))) if not _near(x, y, rtol, atol, o["equal_nan"])]
    if wrong:
        i = wrong[0]
        raise AssertionError(f"{o['at']}{len(wrong)} of {a.numel()} elements differ, the first at {i}: {_flat(a)[i]!r} and {_flat(b)[i]!r}, "
                             f"with rtol={rtol}, atol={atol}.")


def _near(x, y, rtol, atol, equal_nan):
    if x == y:
        return True
    if isinstance(x, bool) or isinstance(y, bool):
        return False
    if math.isnan(x) and math.isnan(y):
        return equal_nan
    return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= atol + rtol * abs(y)


def _is_number(x):
    return isinstance(x, numbers.Number) and not isinstance(x, bool)


def _is_list_of_modules(x):
    return isinstance(x, grapnel.nn.Module) and hasattr(type(x), "__iter__") and hasattr(type(x), "__len__")


def _is_array(x):
    """Of NumPy, which need not be here."""
    return type(x).__module__ == "numpy" and hasattr(type(x), "tolist") and not isinstance(x, type)


def _compare(a, b, o):
    """Raises AssertionError where two nested values differ."""
    if isinstance(a, grapnel.Tensor) and isinstance(b, grapnel.Tensor):
        return _compare_tensors(a, b, o)
    if o["numbers_are_tensors"] and isinstance(a, grapnel.Tensor) and isinstance(b, (numbers.Number, bool)):
        return _compare(a.item(), b, o)
    if o["numbers_are_tensors"] and isinstance(b, grapnel.Tensor) and isinstance(a, (numbers.Number, bool)):
        return _compare(a, b.item(), o)
    if _is_number(a) and _is_number(b):
        rtol, atol = o["rtol"], o["atol"]
        if rtol is None:
            rtol, atol = (1e-7, 1e-7) if isinstance(a, float) or isinstance(b, float) else (0.0, 0.0)
        if not _near(a, b, rtol, atol, o["equal_nan"]):
            raise AssertionError(f"{o['at']}{a!r} is not {b!r}.")
        return None
    if isinstance(a, (str, bytes)) or isinstance(b, (str, bytes)):
        pass
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        if set(a) != set(b):
            raise AssertionError(f"{o['at']}the keys {sorted(map(str, a))} and {sorted(map(str, b))} differ.")
        for key in a:
            _compare(a[key], b[key], o | {"at": f"{o['at']}[{key!r}] "})
        return None
    elif isinstance(a, Sequence) and isinstance(b, Sequence) or _is_list_of_modules(a) and type(a) is type(b):
        if len(a) != len(b):
            raise AssertionError(f"{o['at']}the lengths {len(a)} and {len(b)} differ: {a!r} and {b!r}.")
        for i, (x, y) in enumerate(zip(a, b)):
            _compare(x, y, o | {"at": f"{o['at']}[{i}] "})
        return None
    if _is_array(a) or _is_array(b):
        return _compare(*(x.tolist() if _is_array(x) else x for x in (a, b)), o | {"equal_nan": True})
    if not a == b:
        raise AssertionError(f"{o['at']}{a!r} is not {b!r}.")


def _options(**changed):
    return dict(rtol=None, atol=None, equal_nan=False, check_dtype=True, check_stride=False, numbers_are_tensors=False, at="") | changed


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True, check_dtype=True,
                 check_layout=True, check_stride=False, msg=None):
    """Two tensors, numbers or nested containers of them are near each other."""
    try:
        _compare(actual, expected, _options(rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, check_stride=check_stride))
    except AssertionError as error:
        text = msg(str(error)) if callable(msg) else msg
        raise AssertionError(text or str(error)) from None


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=None):
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg)


def make_tensor(*shape, dtype, device=None, low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False, **ignored_here):
    """A tensor of random values in [low, high)."""
    sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    if dtype is grapnel.bool:
        return grapnel.rand(sizes) < 0.5
    if dtype.is_floating_point:
        low, high = -9.0 if low is None else low, 9.0 if high is None else high
        t = (grapnel.rand(sizes) * (high - low) + low).to(dtype)
    else:
        low, high = (0 if dtype is grapnel.uint8 else -9) if low is None else low, 10 if high is None else high
        t = (grapnel.rand(sizes) * (high - low) + low).floor().to(dtype)
    if exclude_zero:
        t = grapnel.where(t == 0, grapnel.ones_like(t), t)
    return t.requires_grad_() if requires_grad else t


# --- test cases ---


class Texts:
    """Which tests may differ in graph text, and which have: the runner fills the first and empties the second."""

    allowed = frozenset()
    met = []


def _name_of(test):
    return ".".join(test.id().split(".")[-2:])


def _offered(errors):
    """Types of errors, none of which is a stand-in."""
    for error in errors if isinstance(errors, tuple) else (errors,):
        if isinstance(error, Placeholder):
            raise NotOffered(error._name)
    return errors


class TestCase(unittest.TestCase):
    """unittest's, comparing tensors where values are compared."""

    maxDiff = None
    exact_dtype = True
    _precision, _rel_tol = 0, 0

    def _equal(self, x, y, *, atol=None, rtol=None, equal_nan=True, exact_dtype=True, exact_device=False, exact_layout=False, exact_stride=False,
               exact_is_coalesced=False):
        _compare(x, y, _options(rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=exact_dtype, check_stride=exact_stride,
                                numbers_are_tensors=True))

    def assertRaises(self, expected, *args, **kwargs):
        return super().assertRaises(_offered(expected), *args, **kwargs)

    def assertRaisesRegex(self, expected, *args, **kwargs):
        return super().assertRaisesRegex(_offered(expected), *args, **kwargs)

    def assertEqual(self, x, y, msg=None, **options):
        if isinstance(x, str) and isinstance(y, str):
            return super().assertEqual(x, y, msg)
        try:
            self._equal(x, y, **options)
        except AssertionError as error:
            text = msg(str(error)) if callable(msg) else msg
            raise self.failureException(f"{error} {text}" if text else str(error)) from None

    def assertNotEqual(self, x, y, msg=None, **options):
        try:
            self._equal(x, y, **options)
        except AssertionError:
            return
        raise self.failureException(msg or f"{x!r} equals {y!r}.")

    assertEqualIgnoringNestedInts = assertEqual

    def assertExpectedInline(self, actual, expect, skip=0):
        """Text of graphs is another compiler's: where the expectation file says so, it is counted and not compared."""
        if str(actual) == expect:
            return
        if _name_of(self) in Texts.allowed:
            Texts.met.append((_name_of(self), str(actual)))
            return
        self.assertMultiLineEqual(expect, str(actual))

    def assertExpected(self, text, subname=None):
        raise self.skipTest("compares with a file of upstream's that is not here")

    @contextlib.contextmanager
    def assertNoWarnings(self):
        import warnings

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
        self.assertEqual(len(seen), 0, f"warned: {[str(w.message) for w in seen]}")

    def assertNotWarn(self, function, msg=""):
        with self.assertNoWarnings():
            function()

    def assertRaisesRegexIfNoDynamo(self, *args, **kwargs):
        return self.assertRaisesRegex(*args, **kwargs)


def run_tests(argv=None, **options):
    """The end of a test file that is run as a program: the runner has its own way in."""
    unittest.main(module="__main__", argv=argv)


class _Layer(grapnel.nn.Module):
    """A module with a parameter and a buffer, both given as attributes."""

    def __init__(self):
        super().__init__()
        self.layer_dummy_param = grapnel.nn.Parameter(grapnel.empty([3, 5]))
        self.register_buffer("layer_dummy_buf", grapnel.zeros([1, 3, 3, 7]))


def _create_basic_net():
    """A layer, a net that holds it with a parameter and a buffer of its own, and a container of the net twice."""

    class Net(grapnel.nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = inner
            self.dummy_param = grapnel.nn.Parameter(grapnel.empty([3, 5]))
            self.register_buffer("dummy_buf", grapnel.zeros([1, 3, 3, 7]))

    inner = _Layer()
    net = Net()
    return inner, net, grapnel.nn.Sequential(net, net)


@contextlib.contextmanager
def freeze_rng_state():
    before = grapnel.get_rng_state()
    try:
        yield
    finally:
        grapnel.set_rng_state(before)


module("torch.testing", assert_close=assert_close, assert_allclose=assert_allclose, make_tensor=make_tensor)
module("torch.testing._comparison", default_tolerances=lambda *given: _tolerances([getattr(g, "dtype", g) for g in given], None, None))
module("torch.testing._internal")
module("torch.testing._internal.logging_utils")
module("torch.__future__", get_swap_module_params_on_conversion=lambda: False, get_overwrite_module_params_on_conversion=lambda: False,
       set_swap_module_params_on_conversion=lambda value: ignore("torch.__future__.set_swap_module_params_on_conversion"),
       set_overwrite_module_params_on_conversion=lambda value: ignore("torch.__future__.set_overwrite_module_params_on_conversion"))
module(
    "torch.testing._internal.common_utils", TestCase=TestCase, load_tests=lambda loader, tests, pattern: tests, run_tests=run_tests,
    parametrize=parametrize, subtest=Subtest, instantiate_parametrized_tests=instantiate_parametrized_tests, swap=swap, make_tensor=make_tensor,
    freeze_rng_state=freeze_rng_state, scoped_load_inline=skip("compiles C++ at run time"),
    TEST_NUMPY=importlib.util.find_spec("numpy") is not None, IS_LINUX=True,
    **dict.fromkeys(("IS_WINDOWS", "IS_MACOS", "IS_ARM64", "IS_FBCODE", "IS_JETSON", "IS_SANDCASTLE", "IS_CI", "TEST_WITH_ASAN",
                     "TEST_WITH_DEV_DBG_ASAN", "TEST_WITH_ROCM", "TEST_WITH_TSAN", "TEST_WITH_TORCHDYNAMO", "TEST_WITH_CROSSREF", "TEST_WITH_SLOW",
                     "TEST_CUDA", "TEST_MKL", "TEST_MULTIGPU", "TEST_XPU", "TEST_HPU", "TEST_WITH_UBSAN", "TEST_WITH_TORCHINDUCTOR", "TEST_SCIPY",
                     "TEST_ACCELERATOR"), False),
    **dict.fromkeys(("skipIfTorchDynamo", "xfailIfTorchDynamo", "skipIfNoLapack", "skipIfWindows", "skipIfMPS", "skipIfXpu", "skipIfRocm",
                     "skipIfTorchInductor", "slowTest", "markDynamoStrictTest", "skipIfNotMiopenSuggestNHWC", "skipIfCrossRef",
                     "unMarkDynamoStrictTest", "skipIfSlowGradcheckEnv", "skipIfHpu", "skipIfXPU", "skipIfTorchVersionLessThan"), always))
module("torch.testing._internal.common_nn", NNTestCase=type("NNTestCase", (TestCase,), {}), _create_basic_net=_create_basic_net)
module("torch.testing._internal.common_device_type", instantiate_device_type_tests=instantiate_device_type_tests, dtypes=dtypes, onlyCPU=always,
       onlyNativeDeviceTypes=always, dtypesIfCUDA=always, dtypesIfMPS=always, dtypesIfXPU=always, onlyCUDA=skip("needs a GPU"),
       deviceCountAtLeast=skip("needs several devices"), skipMeta=always, skipCUDAIf=always, largeTensorTest=always)
module("torch.testing._internal.common_cuda", TEST_CUDA=False, TEST_MULTIGPU=False, TEST_CUDNN=False)
