/// A store to a narrow type and the load that follows, as one formula: what
/// cpu/kernels/convert_kernel.h does in two.
#pragma once

#include <limits>

#include "grapnel/codegen/llvm/ir_value.h"
#include "grapnel/tensor/dtype.h"

namespace grapnel::codegen {

/// Any value as a compute type. Floating values that no integer holds become the smallest one.
template <class To, class From>
Value<To> value_as(Value<From> x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const Mask fits = (x >= -0x1p63) & (x < 0x1p63);
    return select(fits, cast<int64_t>(select(fits, x, Value<From>(0.0))),
                  Value<int64_t>::of(std::numeric_limits<int64_t>::min()));
  } else {
    return cast<To>(x);
  }
}

/// The nearest number that has `mantissa` bits and this exponent bias, ties to even; it stays in
/// its wide format.
template <int mantissa, int bias, class T>
Value<T> rounded_to(Value<T> x) {
  using S = Value<T>;
  using I = IntOf<S>;
  using Int = typename I::value_type;
  constexpr int dropped = std::numeric_limits<T>::digits - 1 - mantissa;
  const I size = bits(abs(x));
  // Adding just under half of the last kept bit, and that bit itself, carries exactly when
  // nearest-even goes up.
  const I odd = shift_right_logical(size, dropped) & I(1.0);
  const I up = size + I::of((Int{1} << (dropped - 1)) - 1) + odd;
  S result = from_bits(up & I::of(-(Int{1} << dropped)));
  if constexpr (bias != std::numeric_limits<T>::max_exponent - 1) {
    // Below the smallest normal number the last mantissa bit of `magic` is worth one unit of the
    // subnormals.
    const S magic =
        std::bit_cast<T>(static_cast<Int>(std::numeric_limits<T>::max_exponent - bias + dropped)
                         << (std::numeric_limits<T>::digits - 1));
    const S smallest_normal =
        std::bit_cast<T>(static_cast<Int>(std::numeric_limits<T>::max_exponent - bias)
                         << (std::numeric_limits<T>::digits - 1));
    result = select(abs(x) < smallest_normal, (abs(x) + magic) - magic, result);
    const S too_large =
        std::bit_cast<T>(static_cast<Int>(std::numeric_limits<T>::max_exponent + bias)
                         << (std::numeric_limits<T>::digits - 1));
    result = select(result >= too_large, infinity<S>(), result);
  }
  return copysign(select(x == x, result, x), x);
}

/// As a double where the type is an integer: that is how integers are stored in 16 bits.
template <class T>
auto floating(Value<T> x) {
  if constexpr (std::is_integral_v<T>) return cast<double>(x);
  else return x;
}

template <class To, class From>
Value<To> through(Value<From> x, DType via) {
  using I = Value<int64_t>;
  switch (via) {
    case DType::Bool: return value_as<To>(select(x != 0.0, I(1.0), I(0.0)));
    case DType::UInt8: return value_as<To>(value_as<int64_t>(x) & I(255.0));
    case DType::Int32: return value_as<To>((value_as<int64_t>(x) << 32) >> 32);
    case DType::Int64: return value_as<To>(value_as<int64_t>(x));
    case DType::Float16: return value_as<To>(cast<float>(rounded_to<10, 15>(floating(x))));
    case DType::BFloat16: return value_as<To>(cast<float>(rounded_to<7, 127>(floating(x))));
    case DType::Float32: return value_as<To>(value_as<float>(x));
    case DType::Float64: return value_as<To>(value_as<double>(x));
  }
  __builtin_unreachable();
}

}  // namespace grapnel::codegen
