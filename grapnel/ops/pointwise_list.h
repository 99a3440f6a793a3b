/// The list of all pointwise ops, with those that functions/one_call.h names. Their place in it is
/// their place in the kernel tables.
#pragma once

#include "grapnel/functions/one_call.h"
#include "grapnel/ops/defs/activation.h"
#include "grapnel/ops/defs/arithmetic.h"
#include "grapnel/ops/defs/compare.h"
#include "grapnel/ops/defs/elementary.h"

namespace grapnel {

#define GRAPNEL_ITEM(name, Def) Def,
using PointwiseOps =
    OpList<Add, Sub, AddScaled, Mul, Div, FloorDivide, Fmod, Remainder, Pow, Minimum, Maximum, Neg,
           Abs, Sign, Square, Reciprocal, Floor, Ceil, Round, Trunc, Lerp, Addcmul, Addcdiv,  //
           Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd, LogicalOr, LogicalXor, IsNan, IsInf, IsFinite,
           LogicalNot,                                                                       //
           BitwiseAnd, BitwiseOr, BitwiseXor, Where, MaskedFill, Clamp, ClampMin, ClampMax,  //
           Sqrt, Rsqrt, Exp, Exp2, Expm1, Log, Log1p, Log2, Log10, Sin, Cos, Tan, Asin, Acos, Atan,
           Atan2, Sinh, Cosh, Tanh, Erf, Erfc, Relu, ReluBackward, LeakyRelu, Sigmoid, Silu, Gelu,
           GeluTanh, Softplus, Elu, GRAPNEL_UNARY_FUNCTIONS(GRAPNEL_ITEM) BinaryCrossEntropy>;
#undef GRAPNEL_ITEM

}  // namespace grapnel
