/// Padding: elements added around a tensor.
///
///   pad(x, {1, 1})                            // zeros on both sides of the last dimension
///   pad(x, {2, 2, 0, 1}, PadMode::reflect)    // the last dimension first, then the one before it
#pragma once

#include "grapnel/functions/functions.h"

namespace grapnel {

/// What stands in the added places: a number, the mirrored tensor, its edge, or its other end.
enum class PadMode : uint8_t { constant, reflect, replicate, circular };

/// x with elements added around it. `padding` holds pairs [before, after], for the last dimension
/// first. Negative numbers cut elements off. `value` is for PadMode::constant.
Tensor pad(const Tensor& x, IntArrayRef padding, PadMode mode = PadMode::constant,
           const Scalar& value = 0);

}  // namespace grapnel
