/// Random numbers as a pure function of a seed and a counter (Philox4x32-10, from Salmon and
/// others, "Parallel random numbers: as easy as 1, 2, 3", 2011).
///
/// There is no state: element i of a random tensor draws from counter i, so the numbers do not
/// depend on the number of threads, on the order of evaluation or on whether the code was compiled.
/// Everything here is integer arithmetic, or floating-point arithmetic that is exact, and loops
/// over counters turn into SIMD code (everything is forced inline: for that, and so that kernels
/// for several instruction sets do not share a copy).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace grapnel::base {

/// Four words of random bits.
[[gnu::always_inline]] constexpr std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter_lo,
                                                                uint64_t counter_hi) {
  auto c0 = static_cast<uint32_t>(counter_lo), c1 = static_cast<uint32_t>(counter_lo >> 32);
  auto c2 = static_cast<uint32_t>(counter_hi), c3 = static_cast<uint32_t>(counter_hi >> 32);
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;  // the golden ratio
    k1 += 0xBB67AE85;  // the square root of three, less one
  }
  return {c0, c1, c2, c3};
}

/// Two words as one, the first below.
[[gnu::always_inline]] constexpr uint64_t join_words(uint32_t low, uint32_t high) {
  return uint64_t{high} << 32 | low;
}

/// A multiple of 2^-24 in [0, 1), each equally likely: the upper 24 bits.
[[gnu::always_inline]] constexpr float uniform_float(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits >> 8)) * 0x1p-24f;
}

/// A multiple of 2^-53 in [0, 1), each equally likely: the upper 53 bits.
[[gnu::always_inline]] constexpr double uniform_double(uint64_t bits) {
  // Few processors convert vectors of 64-bit integers. Placed in the mantissas of 2^52 and 2^84,
  // the two halves of the number are converted by a subtraction; every step is exact.
  const uint64_t number = bits >> 11;
  const double low = std::bit_cast<double>(0x4330000000000000 | (number & 0xFFFFFFFF)) - 0x1p52;
  const double high = std::bit_cast<double>(0x4530000000000000 | (number >> 32)) - 0x1p84;
  return (high + low) * 0x1p-53;
}

/// The upper and lower half of a * b.
struct WideProduct {
  uint64_t high, low;
};
[[gnu::always_inline]] constexpr WideProduct wide_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<uint64_t>(product >> 64), static_cast<uint64_t>(product)};
}

/// An integer in [0, range), each exactly equally likely; range 0 stands for 2^64. `next_bits()`
/// yields 64 random bits and is called once, except with probability below range / 2^64 (Lemire,
/// "Fast random integer generation in an interval", 2019).
template <class NextBits>
[[gnu::always_inline]] constexpr uint64_t uniform_below(uint64_t range, NextBits&& next_bits) {
  if (range == 0) return next_bits();
  WideProduct product = wide_product(next_bits(), range);
  if (product.low < range) [[unlikely]] {
    // So many of the 2^64 inputs are one too many for an even share.
    const uint64_t surplus = -range % range;
    while (product.low < surplus) product = wide_product(next_bits(), range);
  }
  return product.high;
}

/// An integer in [low, high), low < high, each exactly equally likely, as a pure function of seed
/// and counter. The rare further draws come from the second half of the block and then from blocks
/// whose counter_hi differs in its upper 8 bits, which the caller leaves 0.
[[gnu::always_inline]] constexpr int64_t uniform_int(uint64_t seed, uint64_t counter_lo,
                                                     uint64_t counter_hi, int64_t low,
                                                     int64_t high) {
  uint64_t draw = 0;
  auto next_bits = [&]() __attribute__((always_inline)) {
    const auto block = philox(seed, counter_lo, counter_hi ^ (draw / 2) << 56);
    const size_t word = draw++ % 2 * 2;
    return join_words(block[word], block[word + 1]);
  };
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + uniform_below(range, next_bits));
}

}  // namespace grapnel::base
