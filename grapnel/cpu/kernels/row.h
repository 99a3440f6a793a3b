/// Kernels that take whole rows: softmax and layer norm.
///
/// Each gives, bit for bit, what the ops it stands for give one after another: the formulas beside
/// the members are those ops, and sums and maxima follow Note [Reduction tree]. That is what lets
/// compiled code fuse the same steps in its own way.
#pragma once

#include <cstdint>

#include "grapnel/tensor/dtype.h"

namespace grapnel::kernels {

/// Elements of scratch memory that a kernel wants for rows of n values.
constexpr int64_t row_scratch(int64_t n) { return n / 4096 + 1; }

/// All arrays are dense and of the compute type; x, g and y hold `rows` rows of n values, the
/// others are as said.
struct SoftmaxArgs {
  int64_t rows, n;
  const void* x;
  void* y;
  void* scratch;
};
struct SoftmaxBackwardArgs {
  int64_t rows, n;
  const void *g, *y;
  void* gx;
  void* scratch;
};
struct NormArgs {
  int64_t rows, n;
  const void* x;
  const void *weight, *bias;  ///< one row each, or null
  double eps;
  void *y, *mean, *rstd;  ///< mean and rstd: one value per row
  void* scratch;
};
struct NormBackwardArgs {
  int64_t rows, n;
  const void *g, *x, *mean, *rstd;
  const void* weight;  ///< one row, or null
  void *gx, *product;  ///< product may be null
  void* scratch;
};

struct RowKernels {
  /// e = exp(x - amax(x)), y = e / sum(e)
  void (*softmax)(const SoftmaxArgs&);
  /// z = x - amax(x), y = z - log(sum(exp(z)))
  void (*log_softmax)(const SoftmaxArgs&);
  /// p = g * y, gx = p - y * sum(p)
  void (*softmax_backward)(const SoftmaxBackwardArgs&);
  /// gx = g - exp(y) * sum(g)
  void (*log_softmax_backward)(const SoftmaxBackwardArgs&);
  /// c = x - mean(x), rstd = rsqrt(mean(c * c) + eps), y = c * rstd * weight + bias
  void (*layer_norm)(const NormArgs&);
  /// h = (x - mean) * rstd, w = g * weight, gx = ((w - mean(w)) - h * mean(w * h)) * rstd, product
  /// = g * h
  void (*layer_norm_backward)(const NormBackwardArgs&);
};

}  // namespace grapnel::kernels
