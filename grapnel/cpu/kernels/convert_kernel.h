/// Between stored types and the three compute types. Every narrow type is exact in its compute
/// type, so a load never rounds and a store rounds once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "grapnel/cpu/kernels/pointwise_kernel.h"
#include "grapnel/math/convert.h"

namespace grapnel::kernels {

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
