/// Kernels of pointwise ops: one contiguous loop per op and compute type, compiled once per instruction set.
///
/// Strides, broadcasting and narrow types are the driver's business (ops/pointwise.cpp): it hands over plain blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "grapnel/ops/scalar.h"

namespace grapnel::kernels {

/// out[i] = op(in[0][i], in[1][i], ...) for i < n. `out` may be one of the inputs.
using PointwiseFn = void (*)(const void* const* in, void* out, int64_t n);
/// Widens n elements, `stride` elements apart, to the compute type.
using LoadFn = void (*)(const void* from, int64_t stride, void* to, int64_t n);
/// Rounds n values of the compute type into elements `stride` apart.
using StoreFn = void (*)(const void* from, void* to, int64_t stride, int64_t n);

template <class D, class T, class Isa, size_t... I>
[[gnu::always_inline]] inline void pointwise_loop(const void* const* in, void* out, int64_t n, std::index_sequence<I...>) {
  using S = Num<T, Isa>;
  // Blocks either coincide exactly or do not meet, so the loop carries no dependence.
  const T* const source[] = {static_cast<const T*>(in[I])...};
  T* const target = static_cast<T*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) target[i] = D::template scalar<S>(S::of(source[I][i])...).v;
}

template <class D, class T, class Isa>
void pointwise_kernel(const void* const* in, void* out, int64_t n) {
  pointwise_loop<D, T, Isa>(in, out, n, std::make_index_sequence<D::arity>{});
}

}  // namespace grapnel::kernels
