/// Operands in the form a library kernel reads: one type, perhaps one layout.
#pragma once

#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

/// The values of `t` as `dtype`, row by row in memory: `t` itself where it already is that, else a
/// copy without history.
inline Tensor dense(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype && t.is_contiguous()) return t;
  Tensor copy(TensorImpl::empty(t.shape(), dtype, kCPU));
  cpu::copy(copy, t);
  return copy;
}

/// The values of `t` as `dtype`, laid out in any way.
inline Tensor converted(const Tensor& t, DType dtype) {
  return t.dtype() == dtype ? t : dense(t, dtype);
}

/// Memory for a result of type `dtype`: `out` itself where it is dense and of that type. Afterwards
/// store_result() rounds once.
inline Tensor result_buffer(const Tensor& out, DType dtype) {
  return out.dtype() == dtype && out.is_contiguous()
             ? out
             : Tensor(TensorImpl::empty(out.shape(), dtype, kCPU));
}
inline void store_result(const Tensor& out, const Tensor& buffer) {
  if (!out.is_same(buffer)) cpu::copy(out, buffer);
}

}  // namespace grapnel::cpu
