/// For definitions that refuse arguments although their kernel could compute them: types and values
/// that have no meaning there.
#pragma once

#include "grapnel/ops/op.h"

namespace grapnel {

/// What integers refuse.
enum class Refused : int64_t {
  floor_divide_by_zero,
  fmod_by_zero,
  remainder_by_zero,
  negative_exponent
};

void refuse_bool(std::string_view op, Inputs inputs, std::string_view advice);
void refuse_floats(std::string_view op, Inputs inputs);
void check_mask(std::string_view op, const Tensor& mask);

/// Fails if integers are computed with and `b` holds a value that is refused. Floating-point
/// operands are not looked at. Values that a recording has yet to compute are checked when it runs.
void check_integers(const Tensor& a, const Tensor& b, Refused rule);

}  // namespace grapnel
