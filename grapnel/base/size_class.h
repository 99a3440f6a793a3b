/// Size classes of the allocator for tensor data: multiples of 64 bytes up to 256, then four per
/// power of two, so a block is at most a quarter larger than asked for and there are few enough
/// classes for freed blocks to fit again.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace grapnel::base {

/// The smallest class whose blocks hold `bytes`.
constexpr uint32_t size_class_of(size_t bytes) {
  const size_t last = bytes - (bytes != 0);  // the offset of the last byte
  if (last < 256) return static_cast<uint32_t>(last / 64);
  const auto power = static_cast<uint32_t>(std::bit_width(last)) - 1;
  return 4 * (power - 7) + static_cast<uint32_t>(last >> (power - 2)) % 4;
}

constexpr size_t size_class_bytes(uint32_t size_class) {
  if (size_class < 4) return size_t{size_class + 1} * 64;
  return size_t{size_class % 4 + 5} << (size_class / 4 + 5);
}

}  // namespace grapnel::base
