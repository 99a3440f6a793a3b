/// Helpers that several ops share when they run on the CPU: raw memory, and visits by type.
#pragma once

#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/loop_nest.h"
#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

/// Sets every byte of a fresh, contiguous tensor to zero.
void set_zero(const Tensor& fresh);
/// `source`, copied when writing to `target` could change it.
Tensor apart_from(const Tensor& source, const Tensor& target);
/// Makes `out` hold the values of `self`, unless it is `self`: the first step of ops that change a
/// part.
void begin_with(const Tensor& out, const Tensor& self);
/// Adds `source` to the elements of `target` in row-major order, so that overlapping elements
/// collect all of theirs.
void add_in_order(const Tensor& target, const Tensor& source);

/// A pointwise op by itself: its formula on tensors at hand.
template <class D>
void compute(Tensor& out, std::same_as<Tensor> auto const&... inputs) {
  const Tensor* list[] = {&inputs...};
  run_pointwise(op_of<D>, list, nullptr, {&out, 1});
}

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
void widened(const Tensor& out, Fn&& fn) {
  const DType wide_type = dtype_of(compute_type(out.dtype()));
  if (out.dtype() == wide_type) return fn(out);
  const Tensor wide = dense(out, wide_type);
  fn(wide);
  cpu::copy(out, wide);
}

/// Fails at the first element of `index`, contiguous i64, outside [0, size).
void check_index_bounds(const Tensor& index, int64_t size, int64_t dim, std::string_view op);

}  // namespace grapnel::cpu
