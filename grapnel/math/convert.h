/// What conversions between element types mean.
#pragma once

#include <cstdint>
#include <type_traits>

#include "grapnel/base/half.h"

namespace grapnel {

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

}  // namespace grapnel
