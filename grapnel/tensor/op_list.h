/// The ops that exist as free function, method and in-place method under one name, and differ in
/// nothing else. Declarations (tensor.h, functions/functions.h) and definitions (functions/functions.cpp) are
/// made from these lists.
#pragma once

// clang-format off: it would give every op a line, or a stair.

// Tensor f(x), x.f(), x.f_(). In the second column the definition in ops/.
#define GRAPNEL_UNARY_OPS(X)                                                                       \
  X(neg, Neg) X(abs, Abs) X(sign, Sign) X(reciprocal, Reciprocal) X(sqrt, Sqrt) X(rsqrt, Rsqrt)    \
  X(square, Square) X(exp, Exp) X(exp2, Exp2) X(expm1, Expm1) X(log, Log) X(log1p, Log1p)          \
  X(log2, Log2) X(log10, Log10) X(sin, Sin) X(cos, Cos) X(tan, Tan) X(asin, Asin) X(acos, Acos)    \
  X(atan, Atan) X(sinh, Sinh) X(cosh, Cosh) X(tanh, Tanh) X(erf, Erf) X(erfc, Erfc)                \
  X(floor, Floor) X(ceil, Ceil) X(round, Round) X(trunc, Trunc) X(relu, Relu) X(sigmoid, Sigmoid)  \
  X(silu, Silu)

// Tensor f(x), x.f(): the result has another type, so there is no in-place form.
#define GRAPNEL_UNARY_TEST_OPS(X) \
  X(isnan, IsNan) X(isinf, IsInf) X(isfinite, IsFinite) X(logical_not, LogicalNot)

// Tensor f(x, y) for tensors and numbers, x.f(y), x.f_(y).
#define GRAPNEL_BINARY_OPS(X)                                               \
  X(mul, Mul) X(div, Div) X(pow, Pow) X(fmod, Fmod) X(remainder, Remainder) \
  X(floor_divide, FloorDivide)

// The same for tensors only.
#define GRAPNEL_BINARY_TENSOR_OPS(X) X(minimum, Minimum) X(maximum, Maximum) X(atan2, Atan2)

// Comparisons and logic: bool f(x, y) for tensors and numbers.
#define GRAPNEL_COMPARE_OPS(X)                                                           \
  X(eq, Eq) X(ne, Ne) X(lt, Lt) X(le, Le) X(gt, Gt) X(ge, Ge) X(logical_and, LogicalAnd) \
  X(logical_or, LogicalOr) X(logical_xor, LogicalXor)

// clang-format on
