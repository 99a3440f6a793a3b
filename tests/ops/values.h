/// What tests of ops look at: values as plain numbers, and the text of errors.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/evaluator.h"

namespace grapnel {

/// The elements in row-major order.
inline std::vector<double> values(const Tensor& t) {
  Tensor flat(TensorImpl::empty(t.shape(), kFloat64, kCPU));
  copy_elements(flat, t);
  const auto* p = static_cast<const double*>(flat.data_ptr());
  return {p, p + flat.numel()};
}
using Values = std::vector<double>;

/// The numbers 0, 1, 2, ... in the given shape.
inline Tensor counting(IntArrayRef sizes, DType dtype = kFloat64) {
  Tensor t = empty(sizes, dtype);
  copy_elements(t, arange(t.numel(), dtype).view(sizes));
  return t;
}

/// The message of the Error that `fn` throws, or a sentence that says there was none.
template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// The gradient of sum(fn(x) * weights) for x, with weights 1, 2, 3, ...
template <class Fn>
Values gradient(const Tensor& x, Fn&& fn) {
  const Tensor leaf = x.detach().clone().set_requires_grad(true);
  const Tensor y = fn(leaf);
  (y * (counting(y.sizes(), y.dtype()) + 1.0)).sum().backward();
  return values(leaf.grad());
}

}  // namespace grapnel
