/// How many bytes an array takes whose sizes stand in a file.
#pragma once

#include <cstdint>
#include <optional>

#include "grapnel/tensor/shape.h"

namespace grapnel::io {

/// Nothing if they cannot be counted in 63 bits. That holds for arrays without elements, too, whose
/// strides are made of the other sizes: [0, 2^62, 2^62] is refused.
inline std::optional<uint64_t> array_bytes(IntArrayRef sizes, uint64_t element_bytes) {
  int64_t elements = 1, bytes = 0;
  bool none = false;
  for (const int64_t n : sizes) {
    none |= n == 0;
    if (n != 0 && __builtin_mul_overflow(elements, n, &elements)) return {};
  }
  if (none) return 0;
  if (__builtin_mul_overflow(elements, element_bytes, &bytes)) return {};
  return static_cast<uint64_t>(bytes);
}

}  // namespace grapnel::io
