/// The body of random_kernel. Included by random_kernel_*.cpp only.
#pragma once

#include "grapnel/base/philox.h"
#include "grapnel/cpu/kernels/random_kernel.h"
#include "grapnel/math/math.h"

namespace grapnel::kernels {

/// Blocks that are drawn at once. Their words lie side by side, so that every loop below becomes
/// vector code.
inline constexpr int64_t kRun = 64;

template <class T, class Isa>
struct RandomRun {
  using S = Num<T, Isa>;
  static constexpr double two_pi = 6.28318530717958647692528676656;

  alignas(64) uint32_t word[4][kRun];
  alignas(64) T values[per_block<T>][kRun];  ///< number j of block k is element k * per_block + j

  GRAPNEL_INLINE void draw(uint64_t seed, uint64_t counter) {
    for (int64_t k = 0; k < kRun; ++k) {
      const auto block = base::philox(seed, counter + static_cast<uint64_t>(k), 0);
      word[0][k] = block[0];
      word[1][k] = block[1];
      word[2][k] = block[2];
      word[3][k] = block[3];
    }
  }

  /// Number j of block k in [0, 1), a multiple of 2^-digits.
  GRAPNEL_INLINE S unit(int64_t j, int64_t k, int digits) const {
    if constexpr (is_f32<S>) {
      const float whole = static_cast<float>(static_cast<int32_t>(word[j][k] >> (32 - digits)));
      return S::of(whole * std::bit_cast<float>((127 - digits) << 23));
    } else {
      return S::of(base::uniform_double(base::join_words(word[2 * j][k], word[2 * j + 1][k])));
    }
  }
  /// Number j of block k in (0, 1], whose logarithm is finite; near 0 it is finer than unit().
  GRAPNEL_INLINE S positive(int64_t j, int64_t k) const {
    if constexpr (is_f32<S>)
      return S::of(static_cast<float>(static_cast<int32_t>(word[j][k] >> 1)) * 0x1p-31f + 0x1p-32f);
    else return unit(j, k, 53) + S(0x1p-53);
  }

  /// values[j][k] = fn(j, k), one vector loop per j.
  template <class Fn>
  GRAPNEL_INLINE void each(Fn fn) {
    for (int64_t j = 0; j < per_block<T>; ++j)
      for (int64_t k = 0; k < kRun; ++k) values[j][k] = fn(j, k).v;
  }

  GRAPNEL_INLINE void uniform(T low, T high, int digits) {
    const S a = S::of(low), width = S::of(high - low), end = S::of(high);
    each([&](int64_t j, int64_t k) {
      const S x = a + unit(j, k, digits) * width;
      // The sum may have been rounded up to the end, which does not belong to the interval.
      return select(x < end, x, a);
    });
  }

  /// Box and Muller: two uniform numbers are the radius and the angle of two normal ones.
  GRAPNEL_INLINE void normal(T mean, T deviation) {
    const S m = S::of(mean), d = S::of(deviation);
    for (int64_t j = 0; j < per_block<T>; j += 2) {
      for (int64_t k = 0; k < kRun; ++k) {
        const S radius = sqrt(S(-2.0) * log(positive(j, k)));
        const S angle = unit(j + 1, k, is_f32<S> ? 24 : 53) * S(two_pi);
        values[j][k] = (m + d * (radius * cos<Reach::common>(angle))).v;
        values[j + 1][k] = (m + d * (radius * sin<Reach::common>(angle))).v;
      }
    }
  }

  GRAPNEL_INLINE void exponential(T rate) {
    const S r = S::of(rate);
    each([&](int64_t j, int64_t k) { return (S(0.0) - log(positive(j, k))) / r; });
  }

  GRAPNEL_INLINE void bernoulli(double probability) {
    // Compared as integers: exact to 2^-32, and certain for 0 and 1.
    const auto bound = static_cast<uint64_t>(probability * 0x1p32);
    const auto last = static_cast<uint32_t>(bound - 1);
    const S one = bound > 0 ? 1.0 : 0.0;
    each([&](int64_t j, int64_t k) { return select(word[j][k] <= last, one, S(0.0)); });
  }
};

template <class T, class Isa>
[[gnu::flatten]] void random_kernel(const RandomCall& call, int64_t first_block, int64_t blocks,
                                    T* out) {
  RandomRun<T, Isa> run;
  const T a = static_cast<T>(call.a), b = static_cast<T>(call.b);
  for (int64_t done = 0; done < blocks; done += kRun) {
    run.draw(call.seed, call.offset + static_cast<uint64_t>(first_block + done));
    switch (call.draw) {
      case Draw::uniform: run.uniform(a, b, call.digits); break;
      case Draw::normal: run.normal(a, b); break;
      case Draw::exponential: run.exponential(a); break;
      case Draw::bernoulli: run.bernoulli(call.a); break;
    }
    const int64_t n = blocks - done < kRun ? blocks - done : kRun;
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < per_block<T>; ++j)
        out[(done + k) * per_block<T> + j] = run.values[j][k];
  }
}

}  // namespace grapnel::kernels
