/// Losses whose operands have different sizes.
#pragma once

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// Warns, once per line of the program, that a loss of `x` and `target` broadcasts.
void warn_if_broadcast(const char* op, const Tensor& x, const Tensor& target);

}  // namespace grapnel
