/// Helpers that several ops share and no user calls.
#pragma once

#include "grapnel/functions/factories.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// x in the type that arithmetic on it is done in: narrow types are computed in f32.
inline Tensor computed(const Tensor& x) { return x.to(dtype_of(compute_type(x.dtype()))); }

// --- views by memory layout ---
// `base` is where a tensor lies in its storage and `view` where a view of it lies in the same
// storage.

inline Geometry geometry_of(const Tensor& t) {
  return {t.impl().sizes, t.impl().strides, t.impl().offset};
}
/// The view of base's storage that `view` describes, as a recorded view op.
Tensor as_strided_view(const Tensor& base, const Geometry& view);
/// Zeros of base's shape with `grad` added at the elements of `view`. Elements that share memory
/// share what was added.
Tensor as_strided_backward(const Tensor& grad, const Geometry& base, const Geometry& view);
/// A copy of `base` with `source` written at the elements of `view`.
Tensor as_strided_scatter(const Tensor& base, const Tensor& source, const Geometry& base_geometry,
                          const Geometry& view);
/// A copy of the elements of `view`, read from a tensor of base's shape that may lie anywhere.
Tensor as_strided_copy(const Tensor& x, const Geometry& base, const Geometry& view);

// --- index tensors ---
/// Fails unless `index` holds i64 or i32.
void check_index_type(const Tensor& index, std::string_view op);

}  // namespace grapnel
