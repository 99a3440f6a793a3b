/// Values of the host as tensors, and back.
///
/// Only cpu/ has pointers to the memory of tensors; code above it that makes or reads values comes by
/// here, and by item().
#pragma once

#include <span>
#include <vector>

#include "grapnel/ops/op.h"

namespace grapnel {

/// A tensor of the CPU with copies of the values, row by row.
Tensor from_bytes(const void* values, const Shape& sizes, DType dtype);
/// Copies the values of `t` to `out`, row by row, from wherever they are; waits for them.
void to_bytes(const Tensor& t, void* out);

template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& sizes) {
  return from_bytes(values.data(), sizes, dtype_v<T>);
}
template <class T>
Tensor from_vector(const std::vector<T>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())});
}
/// The values of a tensor that holds T.
template <class T>
std::vector<T> to_vector(const Tensor& t) {
  check(t.dtype() == dtype_v<T>, "to_vector: the tensor holds ", t.dtype(), ", not ", dtype_v<T>,
        ".");
  std::vector<T> out(static_cast<size_t>(t.numel()));
  if (!out.empty()) to_bytes(t, out.data());
  return out;
}

}  // namespace grapnel
