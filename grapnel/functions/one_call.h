/// Functions that are one call of one op and no methods. What declares, defines and lists them is
/// made from the two lists of this header, so a new op names its function here and nowhere else.
/// Tensors and functions.h do not include it: an entry rebuilds the sources that know the ops.
#pragma once

#include "grapnel/tensor/tensor.h"

// clang-format off

// Tensor f(x), pointwise: X(function, definition). The definition is in PointwiseOps by this.
#define GRAPNEL_UNARY_FUNCTIONS(X) \
  X(log_sigmoid, LogSigmoid)

// Others: X(function, definition, (parameters), (arguments of apply)).
#define GRAPNEL_FUNCTIONS(X) \
  X(relu_backward, ReluBackward, (const Tensor& g, const Tensor& y), (g, y))

// clang-format on

namespace grapnel {

#define GRAPNEL_DECLARE(name, Def) Tensor name(const Tensor& x);
GRAPNEL_UNARY_FUNCTIONS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE

#define GRAPNEL_DECLARE(name, Def, parameters, arguments) Tensor name parameters;
GRAPNEL_FUNCTIONS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE

}  // namespace grapnel
