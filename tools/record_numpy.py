#!/usr/bin/env python3
"""Records what NumPy says about our ops as tests/functions/numpy_values.h.

    tools/record_numpy.py > tests/functions/numpy_values.h

A case is a name, the inputs and NumPy's answer. tests/functions/numpy_test.cpp says which of our functions the name stands for
and how close it has to come.
"""
import collections
import math

import numpy as np

np.seterr(all="ignore")
inf, nan = math.inf, math.nan
cases = []


def case(name, result, *inputs):
    cases.append((name, [np.asarray(x) for x in inputs], np.asarray(result)))


def unary(name, fn, values):
    x = np.array(values)
    case(name, fn(x), x)


def binary(name, fn, a, b):
    a, b = np.array(a), np.array(b)
    case(name, fn(a, b), a, b)


def exact(fn):
    """Computed in extended precision where NumPy has it, then rounded to double."""
    return lambda x: fn(x.astype(np.longdouble)).astype(np.float64)


real = [-1e3, -20.0, -3.7, -1.0, -0.5, -1e-5, -0.0, 0.0, 1e-8, 0.1, 0.5, 1.0, 2.5, 9.0, 30.0, 700.0, inf, -inf, nan]
positive = [0.0, 1e-300, 1e-8, 0.1, 0.5, 1.0, 1.0000001, 2.0, 10.0, 12345.678, 1e200, inf, -1.0, nan]
within_one = [-1.0, -0.99, -0.5, -1e-4, 0.0, 0.3, 0.7071, 0.999, 1.0, 1.5, nan]
angles = [-1e6, -100.0, -3.0, -1.5707963267948966, -0.1, 0.0, 1e-9, 0.7, 1.5707963267948966, 3.141592653589793, 10.0, 1e5, 1e15, inf, nan]

for name in ["exp", "exp2", "expm1"]:
    unary(name, exact(getattr(np, name)), real)
for name in ["log", "log2", "log10", "log1p", "sqrt"]:
    unary(name, exact(getattr(np, name)), positive)
for name in ["sin", "cos", "tan"]:
    unary(name, exact(getattr(np, name)), angles)
for name, theirs in [("asin", np.arcsin), ("acos", np.arccos)]:
    unary(name, exact(theirs), within_one)
for name, theirs in [("atan", np.arctan), ("tanh", np.tanh), ("sinh", np.sinh), ("cosh", np.cosh)]:
    unary(name, exact(theirs), real)
unary("erf", np.vectorize(math.erf), real)
unary("erfc", np.vectorize(math.erfc), [x for x in real if not 26 < x < inf])
unary("sigmoid", exact(lambda x: 1 / (1 + np.exp(-x))), real)
unary("reciprocal", np.reciprocal, real)
unary("square", np.square, real)
unary("abs", np.abs, real)
unary("sign", np.sign, real)
halves = [-2.5, -1.5, -0.5, -0.2, -0.0, 0.5, 1.5, 2.5, 2.51, 1e17, inf, nan]
unary("floor", np.floor, halves)
unary("ceil", np.ceil, halves)
unary("trunc", np.trunc, halves)
unary("round", np.round, halves)
unary("isnan", np.isnan, real)
unary("isinf", np.isinf, real)
unary("isfinite", np.isfinite, real)
unary("logical_not", np.logical_not, real)

special = [-inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, inf, nan]
grid_a, grid_b = [x for x in special for _ in special], special * len(special)
binary("pow", np.power, grid_a, grid_b)
binary("atan2", np.arctan2, grid_a, grid_b)
binary("maximum", np.maximum, grid_a, grid_b)
binary("minimum", np.minimum, grid_a, grid_b)
binary("fmod", np.fmod, grid_a, grid_b)
# Without zeros and infinities, for which NumPy and PyTorch differ.
finite = [-7.5, -2.0, -0.3, 0.4, 2.0, 7.5, 1e10]
pairs_a, pairs_b = [x for x in finite for _ in finite], finite * len(finite)
binary("floor_divide", np.floor_divide, pairs_a, pairs_b)
binary("remainder", np.remainder, pairs_a, pairs_b)
binary("div", np.divide, grid_a, grid_b)
binary("mul", np.multiply, grid_a, grid_b)
binary("eq", np.equal, grid_a, grid_b)
binary("lt", np.less, grid_a, grid_b)
binary("ge", np.greater_equal, grid_a, grid_b)
whole_a, whole_b = [x for x in (-7, -3, -1, 0, 2, 9) for _ in range(5)], [-4, -2, 1, 3, 7] * 6
binary("floor_divide", np.floor_divide, whole_a, whole_b)
binary("remainder", np.remainder, whole_a, whole_b)
binary("fmod", np.fmod, whole_a, whole_b)
binary("pow", np.power, [-3, -2, 0, 1, 2, 3, 10], [3, 10, 0, 5, 40, 20, 18])
binary("bitwise_and", np.bitwise_and, whole_a, whole_b)
binary("bitwise_xor", np.bitwise_xor, whole_a, whole_b)
binary("add", np.add, np.arange(6).reshape(2, 3), [[10.5], [20.25]])

rng = np.random.default_rng(1)
box = np.round(rng.standard_normal((2, 3, 4)), 3)
matrix, other = np.round(rng.standard_normal((3, 5)), 3), np.round(rng.standard_normal((5, 2)), 3)
for axis in (0, 1, 2):
    case(f"sum {axis}", box.sum(axis), box)
    case(f"mean {axis}", box.mean(axis), box)
    case(f"amax {axis}", box.max(axis), box)
    case(f"var {axis}", box.var(axis, ddof=1), box)
    case(f"argmax {axis}", box.argmax(axis), box)
    case(f"cumsum {axis}", box.cumsum(axis), box)
    case(f"sort {axis}", np.sort(box, axis), box)
    case(f"argsort {axis}", np.argsort(box, axis), box)
case("sum", box.sum(), box)
case("prod", box.prod(), box)
case("std", box.std(ddof=1), box)
case("matmul", matrix @ other, matrix, other)
case("matmul", matrix @ other[:, 0], matrix, other[:, 0])
case("matmul", box @ np.swapaxes(box, 1, 2), box, np.swapaxes(box, 1, 2))
case("outer", np.outer(matrix[0], other[:, 0]), matrix[0], other[:, 0])
case("tril", np.tril(matrix), matrix)
case("flip", np.flip(box, 1), box)
case("einsum ij,jk->ki", np.einsum("ij,jk->ki", matrix, other), matrix, other)
case("logsumexp", np.log(np.exp(box).sum(-1)), box)
case("softmax", np.exp(box) / np.exp(box).sum(-1, keepdims=True), box)
case("linspace", np.linspace(0, 1, 7))
case("arange", np.arange(-1, 1, 0.3))


def number(x, dtype):
    if dtype.kind in "bi":
        return str(int(x))
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    return repr(float(x))  # the shortest text that reads back as the same number


def array(a):
    kind = {"b": "kBool", "i": "kInt64", "f": "kFloat64"}[a.dtype.kind]
    values = ", ".join(number(x, a.dtype) for x in a.reshape(-1))
    return f"{{{kind}, {{{', '.join(map(str, a.shape))}}}, {{{values}}}}}"


print("/// What NumPy says about our ops. Made by tools/record_numpy.py; do not edit.")
print("""#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel::recorded {

struct Array {
  DType dtype;
  std::vector<int64_t> sizes;
  std::vector<double> values;
};
struct Case {
  std::string_view name;
  std::vector<Array> inputs;
  Array result;
};

// clang-format off""")
texts = [(name, [array(x) for x in inputs], array(result)) for name, inputs, result in cases]
# An input that several cases share gets a name.
count = collections.Counter(text for _, inputs, _ in texts for text in inputs)
names = {text: f"array{i}" for i, text in enumerate(text for text, times in count.items() if times > 1)}
for text, name in names.items():
    print(f"inline const Array {name} = {text};")
print("inline const std::vector<Case> cases = {")
for name, inputs, result in texts:
    print(f'    {{"{name}", {{{", ".join(names.get(x, x) for x in inputs)}}}, {result}}},')
print("};\n// clang-format on\n\n}  // namespace grapnel::recorded")
