/// What pointwise ops refuse although their kernels could compute it: values and types that have no
/// meaning there.
#pragma once

#include "grapnel/ops/op_table.h"

namespace grapnel {

/// Integers have no infinity: a zero divisor is the caller's to fix. Floating-point divisors are
/// not looked at.
void check_divisor(std::string_view op, const Tensor& a, const Tensor& b);
/// Integers have no fractions: neither has a power of them.
void check_exponent(const Tensor& base, const Tensor& exponent);
void check_not_bool(std::string_view op, const Tensor& t, std::string_view advice);
void check_no_floats(std::string_view op, const Tensor& a, const Tensor& b);
void check_mask(std::string_view op, const Tensor& mask);

template <class D>
void check_arguments(const Tensor& x) {
  if constexpr (std::is_same_v<D, Neg>)
    check_not_bool("neg", x, "To invert a mask use logical_not.");
}

template <class D>
void check_arguments(const Tensor& a, const Tensor& b) {
  if constexpr (std::is_same_v<D, FloorDivide> || std::is_same_v<D, Fmod> ||
                std::is_same_v<D, Remainder>) {
    check_divisor(D::name, a, b);
  } else if constexpr (std::is_same_v<D, Pow>) {
    check_exponent(a, b);
  } else if constexpr (std::is_same_v<D, Sub>) {
    check_not_bool("sub", a,
                   "Use logical_xor to find where masks differ, logical_not to invert one.");
    check_not_bool("sub", b,
                   "Use logical_xor to find where masks differ, logical_not to invert one.");
  } else if constexpr (std::is_same_v<D, BitwiseAnd> || std::is_same_v<D, BitwiseOr> ||
                       std::is_same_v<D, BitwiseXor>) {
    check_no_floats(D::name, a, b);
  }
}

}  // namespace grapnel
