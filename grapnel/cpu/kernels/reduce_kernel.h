/// Kernels of reductions, in one fixed order.
///
/// Note [Reduction tree]
/// The values to reduce, taken in row-major order of the reduced dimensions, are cut into chunks of
/// 4,096. Inside a chunk 64 lanes run side by side, lane l combining values l, l + 64, l + 128,
/// ...; the lanes are then folded in halves (l with l + 32, then l + 16, ...). The results of the
/// chunks are reduced in the same way, until one is left. Missing values are the identity, which
/// changes no bit of what it meets (for sums it is -0.0). The order depends on nothing but the
/// number of values: not on threads, vector width, strides or the device. It is also far more
/// accurate than a running sum.
#pragma once

#include <cstdint>

#include "grapnel/cpu/kernels/lanes.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/math/scalar.h"

namespace grapnel::kernels {

inline constexpr int64_t kReduceLanes = 64;
inline constexpr int64_t kReduceChunk = kReduceLanes * 64;

/// Reduces the results of `n` chunks, `size` bytes each, in place until one is left.
inline void fold_chunks(ReduceChunkFn chunk, char* partial, int64_t n, int64_t size) {
  while (n > 1) {
    const int64_t chunks = (n + kReduceChunk - 1) / kReduceChunk;
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t length =
          n - c * kReduceChunk < kReduceChunk ? n - c * kReduceChunk : kReduceChunk;
      chunk(partial + c * kReduceChunk * size, length, partial + c * size);
    }
    n = chunks;
  }
}

template <class D, class T, class Isa>
struct ReduceKernel {
  using S = Num<T, Isa>;
  GRAPNEL_INLINE static T combine(T a, T b) { return D::template combine<S>(S::of(a), S::of(b)).v; }

  /// All lanes of a chunk, in registers.
  class Chunk {
   public:
    GRAPNEL_INLINE explicit Chunk(const T* x) {
#pragma GCC unroll 32
      for (int i = 0; i < registers; ++i) lane_[i] = seen(R::load(x + i * R::count));
    }
    GRAPNEL_INLINE void combine_with(const T* x) {
#pragma GCC unroll 32
      for (int i = 0; i < registers; ++i)
        lane_[i] = both(lane_[i], seen(R::load(x + i * R::count)));
    }
    /// Folds the lanes in halves: registers with registers, then halves of the last one.
    GRAPNEL_INLINE T fold() {
#pragma GCC unroll 8
      for (int half = registers / 2; half > 0; half /= 2)
#pragma GCC unroll 32
        for (int i = 0; i < half; ++i) lane_[i] = both(lane_[i], lane_[i + half]);
      const T result = fold_register<both, R::count / 2>(lane_[0]);
      if constexpr (!skips_nan) return result;
      const T nan = fold_register<sum, R::count / 2>(nan_);
      return nan == nan ? result : nan;
    }

   private:
    using R = Lanes<T, Isa>;
    static constexpr int registers = kReduceLanes / R::count;
    /// Values that are NaN are set aside where the others can then be combined by one instruction
    /// instead of four that wait for each other.
    static constexpr bool skips_nan =
        std::is_floating_point_v<T> && requires(R r) { D::template combine_numbers<R>(r, r); };

    GRAPNEL_INLINE static R both(R a, R b) {
      if constexpr (skips_nan) return D::template combine_numbers<R>(a, b);
      else return D::template combine<R>(a, b);
    }
    GRAPNEL_INLINE R seen(R x) {
      if constexpr (skips_nan) nan_ = select(x != x, x, nan_);
      return x;
    }
    GRAPNEL_INLINE static R sum(R a, R b) { return a + b; }
    template <R (*combine_two)(R, R), int width>
    GRAPNEL_INLINE static T fold_register(R r) {
      if constexpr (width == 0) return r.first();
      else
        return fold_register<combine_two, width / 2>(
            combine_two(r, r.template from_above<width>()));
    }

    R lane_[registers];
    R nan_ = R(0.0);  ///< 0 or NaN
  };

  /// n values and as many identities as are missing. Inlined, it would keep the lanes of all rows
  /// in memory.
  [[gnu::noinline]] static void complete(const T* x, int64_t n, T* lanes) {
    for (int64_t l = 0; l < kReduceLanes; ++l)
      lanes[l] = l < n ? x[l] : D::template identity<S>().v;
  }

  static void chunk(const void* in, int64_t n, void* out) {
    const T* x = static_cast<const T*>(in);
    const int64_t whole = n / kReduceLanes * kReduceLanes;
    alignas(64) T rest[kReduceLanes];
    if (whole < n || n == 0) complete(x + whole, n - whole, rest);
    Chunk c(whole > 0 ? x : rest);
    for (int64_t k = kReduceLanes; k < whole; k += kReduceLanes) c.combine_with(x + k);
    if (0 < whole && whole < n) c.combine_with(rest);
    *static_cast<T*>(out) = c.fold();
  }

  static void columns(const void* in, int64_t rows, int64_t row_stride, int64_t columns,
                      void* out) {
    // Narrow strips keep all lanes of a strip in the first-level cache.
    constexpr int64_t strip = 64;
    alignas(64) T lane[kReduceLanes][strip];
    // Lanes that no row reaches hold the identity and change nothing: only the used power of two is
    // folded.
    int64_t used = 1;
    while (used < rows && used < kReduceLanes) used *= 2;
    for (int64_t c = 0; c < columns; c += strip) {
      const int64_t width = columns - c < strip ? columns - c : strip;
      const T* x = static_cast<const T*>(in) + c;
      for (int64_t r = 0; r < used; ++r)
        for (int64_t i = 0; i < width; ++i)
          lane[r][i] = r < rows ? x[r * row_stride + i] : D::template identity<S>().v;
      for (int64_t r = kReduceLanes; r < rows; ++r) {
        T* to = lane[r % kReduceLanes];
        const T* from = x + r * row_stride;
        for (int64_t i = 0; i < width; ++i) to[i] = combine(to[i], from[i]);
      }
      for (int64_t half = used / 2; half > 0; half /= 2)
        for (int64_t r = 0; r < half; ++r)
          for (int64_t i = 0; i < width; ++i) lane[r][i] = combine(lane[r][i], lane[r + half][i]);
      for (int64_t i = 0; i < width; ++i) static_cast<T*>(out)[c + i] = lane[0][i];
    }
  }

  static void combine_rows(void* lanes, const void* in, int64_t n) {
    T* to = static_cast<T*>(lanes);
    const T* from = static_cast<const T*>(in);
    for (int64_t i = 0; i < n; ++i) to[i] = combine(to[i], from[i]);
  }

  static void finish(void* values, int64_t n, int64_t count) {
    T* v = static_cast<T*>(values);
    for (int64_t i = 0; i < n; ++i)
      v[i] = D::template finish<S>(S::of(v[i]), S::of(static_cast<T>(count))).v;
  }

  static constexpr ReduceKernels make() {
    ReduceKernels k{&chunk, &columns, &combine_rows, nullptr};
    if constexpr (requires { D::template finish<S>(S(), S()); }) k.finish = &finish;
    return k;
  }
};

}  // namespace grapnel::kernels
