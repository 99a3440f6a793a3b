/// Passes over a tensor in the order it lies in memory, for hooks that do not care about the order
/// of its elements.
#pragma once

#include <algorithm>

#include "grapnel/tensor/tensor.h"

namespace grapnel::hooks {

/// The dimensions of t, those with the largest strides first, equal ones in their order.
inline Shape memory_order(const Tensor& t) {
  Shape order;
  for (int64_t d = 0; d < t.dim(); ++d) order.push_back(d);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return t.stride(a) != t.stride(b) ? t.stride(a) > t.stride(b) : a < b;
  });
  return order;
}
inline Shape inverse(const Shape& order) {
  Shape out = order;
  for (int i = 0; i < order.size(); ++i) out[static_cast<int>(order[i])] = i;
  return out;
}

/// The same elements; a transposed matrix, say, turned round again.
inline Tensor in_memory_order(const Tensor& t) {
  return t.is_contiguous() ? t : t.permute(memory_order(t));
}

}  // namespace grapnel::hooks
