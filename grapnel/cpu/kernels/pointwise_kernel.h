/// Kernels of pointwise ops: one contiguous loop per op and compute type, compiled once per
/// instruction set.
///
/// Strides, broadcasting and narrow types are the driver's business (cpu/pointwise.cpp): it hands
/// over plain blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "grapnel/math/scalar.h"

#ifdef __clang__
#define GRAPNEL_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define GRAPNEL_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace grapnel::kernels {

/// out[i] = op(in[0][i], in[1][i], ...) for i < n. `out` may be one of the inputs.
using PointwiseFn = void (*)(const void* const* in, void* out, int64_t n);
/// Widens n elements, `stride` elements apart, to the compute type.
using LoadFn = void (*)(const void* from, int64_t stride, void* to, int64_t n);
/// Rounds n values of the compute type into elements `stride` apart.
using StoreFn = void (*)(const void* from, void* to, int64_t stride, int64_t n);

/// An op whose formula is much cheaper for usual arguments may state which they are (`usual`) and
/// the shorter formula that gives the same bits for them (`usual_scalar`). The kernel then looks at
/// a block before it computes it.
template <class D, class S>
concept HasUsualArguments = D::arity == 1 && requires(S x) {
  D::template usual<S>(x);
  D::template usual_scalar<S>(x);
};
inline constexpr int64_t kUsualBlock = 256;

// flatten: a formula left out of line would not be vectorised.
template <class D, class T, class Isa, size_t... I>
[[gnu::always_inline]] inline void pointwise_loop(const void* const* in, void* out, int64_t n,
                                                  std::index_sequence<I...>) {
  using S = Num<T, Isa>;
  // Blocks either coincide exactly or do not meet, so the loop carries no dependence.
  const T* const source[] = {static_cast<const T*>(in[I])...};
  T* const target = static_cast<T*>(out);
  if constexpr (HasUsualArguments<D, S>) {
    for (int64_t begin = 0; begin < n; begin += kUsualBlock) {
      const int64_t end = begin + kUsualBlock < n ? begin + kUsualBlock : n;
      int unusual = 0;
      for (int64_t i = begin; i < end; ++i) unusual |= !D::template usual<S>(S::of(source[0][i]));
      if (unusual) {
        GRAPNEL_INDEPENDENT_ITERATIONS
        for (int64_t i = begin; i < end; ++i)
          target[i] = D::template scalar<S>(S::of(source[0][i])).v;
      } else {
        GRAPNEL_INDEPENDENT_ITERATIONS
        for (int64_t i = begin; i < end; ++i)
          target[i] = D::template usual_scalar<S>(S::of(source[0][i])).v;
      }
    }
  } else {
    GRAPNEL_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) target[i] = D::template scalar<S>(S::of(source[I][i])...).v;
  }
}

template <class D, class T, class Isa>
[[gnu::flatten]] void pointwise_kernel(const void* const* in, void* out, int64_t n) {
  pointwise_loop<D, T, Isa>(in, out, n, std::make_index_sequence<D::arity>{});
}

}  // namespace grapnel::kernels
