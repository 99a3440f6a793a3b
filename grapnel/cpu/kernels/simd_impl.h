/// Registers of one instruction set, and transposing with them.
///
/// Only files compiled for one instruction set may include this one. Everything in it is a template
/// on the tag of the set.
#pragma once

#include <cstdint>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "grapnel/math/scalar.h"

namespace grapnel::kernels {

// One register of T, and how many of them a tile of c takes: rows x vectors accumulators, plus the
// operands, must fit the register file.
template <class T, class Isa>
struct Simd;
template <class T>
struct Simd<T, IsaBaseline> {
  typedef T V __attribute__((vector_size(16)));
  static constexpr int rows = 4, vectors = 2;
  static GRAPNEL_INLINE V fma(V a, V b, V c) { return a * b + c; }
};
#if defined(__AVX2__) && defined(__FMA__)
template <class T>
struct Simd<T, IsaAvx2> {
  typedef T V __attribute__((vector_size(32)));
  static constexpr int rows = 6, vectors = 2;
  static GRAPNEL_INLINE V fma(V a, V b, V c) {
    if constexpr (sizeof(T) == 8) return _mm256_fmadd_pd(a, b, c);
    else return _mm256_fmadd_ps(a, b, c);
  }
};
#endif
#if defined(__AVX512F__)
template <class T>
struct Simd<T, IsaAvx512> {
  typedef T V __attribute__((vector_size(64)));
  static constexpr int rows = 8, vectors = 3;
  static GRAPNEL_INLINE V fma(V a, V b, V c) {
    if constexpr (sizeof(T) == 8) return _mm512_fmadd_pd(a, b, c);
    else return _mm512_fmadd_ps(a, b, c);
  }
};
#endif

template <class T, class Isa>
class Transpose {
  using V = typename Simd<T, Isa>::V;
  static constexpr int lanes = sizeof(V) / sizeof(T);

  template <int... I>
  static GRAPNEL_INLINE V low_halves(V a, V b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (I % 2 * lanes + I / 2)...);
  }
  template <int... I>
  static GRAPNEL_INLINE V high_halves(V a, V b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (I % 2 * lanes + lanes / 2 + I / 2)...);
  }

  /// A square of lanes x lanes. Interleaving line i with line i + lanes / 2 rotates the bits of
  /// every element's (line, lane) address by one; after log2(lanes) rounds line and lane have
  /// changed places.
  static GRAPNEL_INLINE void square(const T* from, int64_t from_row, T* to, int64_t to_row) {
    using Lanes = std::make_integer_sequence<int, lanes>;
    V x[lanes], y[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) __builtin_memcpy(&x[i], from + i * from_row, sizeof(V));
#pragma GCC unroll 4
    for (int round = 1; round < lanes; round *= 2) {
#pragma GCC unroll 16
      for (int i = 0; i < lanes / 2; ++i) {
        y[2 * i] = low_halves(x[i], x[i + lanes / 2], Lanes{});
        y[2 * i + 1] = high_halves(x[i], x[i + lanes / 2], Lanes{});
      }
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) x[i] = y[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) __builtin_memcpy(to + i * to_row, &x[i], sizeof(V));
  }

 public:
  static void run(int64_t rows, int64_t cols, const T* from, int64_t from_row, T* to,
                  int64_t to_row) {
    const int64_t square_rows = rows / lanes * lanes, square_cols = cols / lanes * lanes;
    for (int64_t i = 0; i < square_rows; i += lanes) {
      for (int64_t j = 0; j < square_cols; j += lanes)
        square(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
      for (int64_t j = square_cols; j < cols; ++j) {
        for (int64_t r = i; r < i + lanes; ++r) to[j * to_row + r] = from[r * from_row + j];
      }
    }
    for (int64_t i = square_rows; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) to[j * to_row + i] = from[i * from_row + j];
    }
  }
};

}  // namespace grapnel::kernels
