/// Between stored types and the three compute types. Every narrow type is exact in its compute
/// type, so a load never rounds and a store rounds once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "grapnel/base/half.h"
#include "grapnel/ops/kernels/pointwise_kernel.h"

namespace grapnel::kernels {

/// Value conversion between any two element types. Floating values that no integer holds become the
/// smallest one.
template <class To, class From>
[[gnu::always_inline]] inline To convert(From x) {
  constexpr bool from_float = std::is_floating_point_v<From> || std::is_same_v<From, Half> ||
                              std::is_same_v<From, BFloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>) {
    if constexpr (std::is_same_v<From, float>) return To(x);
    else return To(static_cast<double>(x));
  } else if constexpr (from_float && std::is_integral_v<To>) {
    // Through i64, as the processor does; narrower integers take the low bits.
    const bool fits = x >= From(-9223372036854775808.0) && x < From(9223372036854775808.0);
    const int64_t wide = fits ? static_cast<int64_t>(x) : INT64_MIN;
    return static_cast<To>(wide);
  } else {
    return static_cast<To>(x);
  }
}

template <class T, class Stored, class Isa>
void load_kernel(const void* from, int64_t stride, void* to, int64_t n) {
  const Stored* x = static_cast<const Stored*>(from);
  T* y = static_cast<T*>(to);
  if (stride == 1) {
    if constexpr (std::is_same_v<Stored, bool>) {
      // As the 0 or 1 it is stored as: GCC vectorises no loop that reads bools.
      const auto* bytes = static_cast<const uint8_t*>(from);
      GRAPNEL_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(static_cast<int32_t>(bytes[i]));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i] = convert<T>(x[i]);
    }
  } else if (stride == 0) {
    const T value = convert<T>(x[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = convert<T>(x[i * stride]);
  }
}

template <class T, class Stored, class Isa>
void store_kernel(const void* from, void* to, int64_t stride, int64_t n) {
  const T* x = static_cast<const T*>(from);
  Stored* y = static_cast<Stored*>(to);
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = convert<Stored>(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * stride] = convert<Stored>(x[i]);
  }
}

}  // namespace grapnel::kernels
