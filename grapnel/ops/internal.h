/// Helpers that several ops share and no user calls. Functions named raw here keep no history and
/// are for use inside `run`.
#pragma once

#include "grapnel/ops/define.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/factories.h"

namespace grapnel {

// --- raw memory ---
/// Sets every byte of a fresh, contiguous tensor to zero.
void raw_zero(const Tensor& fresh);
/// `source`, copied when writing to `target` could change it.
Tensor raw_apart(const Tensor& source, const Tensor& target);
/// Makes `out` hold the values of `self`, unless it is `self`: the first step of ops that change a
/// part.
void raw_begin_with(const Tensor& out, const Tensor& self);
/// Adds `source` to the elements of `target` in row-major order, so that overlapping elements
/// collect all of theirs.
void raw_add(const Tensor& target, const Tensor& source);

/// Calls fn.template operator()<T>() with the type arithmetic on `dtype` is done in.
template <class Fn>
decltype(auto) visit_compute(DType dtype, Fn&& fn) {
  switch (compute_type(dtype)) {
    case Compute::F32: return fn.template operator()<float>();
    case Compute::F64: return fn.template operator()<double>();
    case Compute::I64: return fn.template operator()<int64_t>();
  }
  __builtin_unreachable();
}
/// Calls fn.template operator()<Word>() with an integer as wide as an element of `dtype`, for code
/// that only moves bits.
template <class Fn>
decltype(auto) visit_word(DType dtype, Fn&& fn) {
  switch (element_size(dtype)) {
    case 1: return fn.template operator()<uint8_t>();
    case 2: return fn.template operator()<uint16_t>();
    case 4: return fn.template operator()<uint32_t>();
    default: return fn.template operator()<uint64_t>();
  }
}
/// Calls fn(wide), where wide holds the values of `out` in its compute type, and stores the result:
/// sums of narrow types are rounded once, at the end.
template <class Fn>
void raw_widened(const Tensor& out, Fn&& fn) {
  const DType wide_type = dtype_of(compute_type(out.dtype()));
  if (out.dtype() == wide_type) return fn(out);
  const Tensor wide = dense(out, wide_type);
  fn(wide);
  copy_elements(out, wide);
}

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
/// Fails at the first element of `index`, contiguous i64, outside [0, size).
void check_index_bounds(const Tensor& index, int64_t size, int64_t dim, std::string_view op);

}  // namespace grapnel
