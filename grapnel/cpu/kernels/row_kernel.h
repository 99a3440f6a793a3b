/// The row kernels for one instruction set (row.h says what they compute). Included by row_*.cpp
/// only.
#pragma once

#include "grapnel/cpu/kernels/reduce_kernel.h"
#include "grapnel/cpu/kernels/row.h"
#include "grapnel/math/math.h"
#include "grapnel/ops/defs/reduction.h"

namespace grapnel::kernels {

template <class T, class Isa>
struct RowKernel {
  using S = Num<T, Isa>;
  static_assert(row_scratch(kReduceChunk) == 2, "row_scratch counts chunks");

  template <class D>
  GRAPNEL_INLINE static T chunk_of(const T* x, int64_t n) {
    T result;
    ReduceKernel<D, T, Isa>::chunk(x, n, &result);
    return result;
  }

  /// Reduces n values by Note [Reduction tree]. values(begin, count) gives the address of a chunk,
  /// perhaps made just now.
  template <class D, class Values>
  GRAPNEL_INLINE static T reduce(int64_t n, T* partial, Values values) {
    if (n <= kReduceChunk) return chunk_of<D>(values(int64_t{0}, n), n);
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += kReduceChunk, ++count) {
      const int64_t length = n - begin < kReduceChunk ? n - begin : kReduceChunk;
      partial[count] = chunk_of<D>(values(begin, length), length);
    }
    while (count > 1) {
      int64_t chunks = 0;
      for (int64_t begin = 0; begin < count; begin += kReduceChunk, ++chunks)
        partial[chunks] = chunk_of<D>(partial + begin,
                                      count - begin < kReduceChunk ? count - begin : kReduceChunk);
      count = chunks;
    }
    return partial[0];
  }
  template <class D>
  GRAPNEL_INLINE static T reduce_row(const T* x, int64_t n, T* partial) {
    return reduce<D>(n, partial, [x](int64_t begin, int64_t) { return x + begin; });
  }

  /// to[i] = f(i); blocks either coincide exactly or do not meet.
  template <class F>
  GRAPNEL_INLINE static void fill(T* to, int64_t begin, int64_t n, F f) {
    GRAPNEL_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) to[i] = f(begin + i);
  }

  static void softmax(const SoftmaxArgs& a) {
    T* const partial = static_cast<T*>(a.scratch);
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* const x = static_cast<const T*>(a.x) + r * a.n;
      T* const y = static_cast<T*>(a.y) + r * a.n;
      const T top = reduce_row<Amax>(x, a.n, partial);
      const T sum = reduce<Sum>(a.n, partial, [=](int64_t begin, int64_t n) {
        fill(y + begin, begin, n, [=](int64_t i) { return exp(S::of(x[i] - top)).v; });
        return y + begin;
      });
      fill(y, 0, a.n, [=](int64_t i) { return y[i] / sum; });
    }
  }

  static void log_softmax(const SoftmaxArgs& a) {
    alignas(64) T block[kReduceChunk];
    T* const buffer = block;
    T* const partial = static_cast<T*>(a.scratch);
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* const x = static_cast<const T*>(a.x) + r * a.n;
      T* const y = static_cast<T*>(a.y) + r * a.n;
      const T top = reduce_row<Amax>(x, a.n, partial);
      const T sum = reduce<Sum>(a.n, partial, [=](int64_t begin, int64_t n) {
        fill(buffer, begin, n, [=](int64_t i) { return exp(S::of(x[i] - top)).v; });
        return buffer;
      });
      const T shift = log(S::of(sum)).v;
      fill(y, 0, a.n, [=](int64_t i) { return (x[i] - top) - shift; });
    }
  }

  static void softmax_backward(const SoftmaxBackwardArgs& a) {
    T* const partial = static_cast<T*>(a.scratch);
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* const g = static_cast<const T*>(a.g) + r * a.n;
      const T* const y = static_cast<const T*>(a.y) + r * a.n;
      T* const gx = static_cast<T*>(a.gx) + r * a.n;
      const T sum = reduce<Sum>(a.n, partial, [=](int64_t begin, int64_t n) {
        fill(gx + begin, begin, n, [=](int64_t i) { return g[i] * y[i]; });
        return gx + begin;
      });
      fill(gx, 0, a.n, [=](int64_t i) { return gx[i] - y[i] * sum; });
    }
  }

  static void log_softmax_backward(const SoftmaxBackwardArgs& a) {
    T* const partial = static_cast<T*>(a.scratch);
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* const g = static_cast<const T*>(a.g) + r * a.n;
      const T* const y = static_cast<const T*>(a.y) + r * a.n;
      const T sum = reduce_row<Sum>(g, a.n, partial);
      fill(static_cast<T*>(a.gx) + r * a.n, 0, a.n,
           [=](int64_t i) { return g[i] - exp(S::of(y[i])).v * sum; });
    }
  }

  static void layer_norm(const NormArgs& a) {
    alignas(64) T block[kReduceChunk];
    T* const buffer = block;
    T* const partial = static_cast<T*>(a.scratch);
    const T count = static_cast<T>(a.n), eps = static_cast<T>(a.eps);
    const T* const weight = static_cast<const T*>(a.weight);
    const T* const bias = static_cast<const T*>(a.bias);
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* const x = static_cast<const T*>(a.x) + r * a.n;
      T* const y = static_cast<T*>(a.y) + r * a.n;
      const T mean = reduce_row<Mean>(x, a.n, partial) / count;
      const T squares = reduce<Mean>(a.n, partial, [=](int64_t begin, int64_t n) {
        fill(buffer, begin, n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
        return buffer;
      });
      const T rstd = (S(1.0) / sqrt(S::of(squares / count + eps))).v;
      if (weight && bias)
        fill(y, 0, a.n, [=](int64_t i) { return (x[i] - mean) * rstd * weight[i] + bias[i]; });
      else if (weight) fill(y, 0, a.n, [=](int64_t i) { return (x[i] - mean) * rstd * weight[i]; });
      else if (bias) fill(y, 0, a.n, [=](int64_t i) { return (x[i] - mean) * rstd + bias[i]; });
      else fill(y, 0, a.n, [=](int64_t i) { return (x[i] - mean) * rstd; });
      static_cast<T*>(a.mean)[r] = mean;
      static_cast<T*>(a.rstd)[r] = rstd;
    }
  }

  template <class Weighted>
  GRAPNEL_INLINE static void norm_backward_row(const NormBackwardArgs& a, int64_t r,
                                               Weighted weighted) {
    alignas(64) T block[kReduceChunk];
    T* const buffer = block;
    T* const partial = static_cast<T*>(a.scratch);
    const T count = static_cast<T>(a.n), mean = static_cast<const T*>(a.mean)[r],
            rstd = static_cast<const T*>(a.rstd)[r];
    const T* const x = static_cast<const T*>(a.x) + r * a.n;
    const T* const g = static_cast<const T*>(a.g) + r * a.n;
    T* const gx = static_cast<T*>(a.gx) + r * a.n;
    const T average =
        reduce<Mean>(a.n, partial,
                     [=](int64_t begin, int64_t n) {
                       fill(buffer, begin, n, [=](int64_t i) { return weighted(g[i], i); });
                       return buffer;
                     }) /
        count;
    const T along = reduce<Mean>(a.n, partial,
                                 [=](int64_t begin, int64_t n) {
                                   fill(buffer, begin, n, [=](int64_t i) {
                                     return weighted(g[i], i) * ((x[i] - mean) * rstd);
                                   });
                                   return buffer;
                                 }) /
                    count;
    fill(gx, 0, a.n, [=](int64_t i) {
      return ((weighted(g[i], i) - average) - ((x[i] - mean) * rstd) * along) * rstd;
    });
    if (a.product)
      fill(static_cast<T*>(a.product) + r * a.n, 0, a.n,
           [=](int64_t i) { return g[i] * ((x[i] - mean) * rstd); });
  }

  static void layer_norm_backward(const NormBackwardArgs& a) {
    const T* const weight = static_cast<const T*>(a.weight);
    for (int64_t r = 0; r < a.rows; ++r) {
      if (weight) norm_backward_row(a, r, [=](T g, int64_t i) { return g * weight[i]; });
      else norm_backward_row(a, r, [](T g, int64_t) { return g; });
    }
  }

  static constexpr RowKernels make() {
    return {&softmax,    &log_softmax,        &softmax_backward, &log_softmax_backward,
            &layer_norm, &layer_norm_backward};
  }
};

}  // namespace grapnel::kernels
