#include "grapnel/ops/vectors.h"

#include "grapnel/ops/evaluator.h"

namespace grapnel {

Tensor from_bytes(const void* values, const Shape& sizes, DType dtype) {
  Tensor out(TensorImpl::empty(sizes, dtype, kCPU));
  if (out.numel() == 0) return out;
  StoragePtr given =
      Storage::borrow(const_cast<void*>(values), static_cast<size_t>(out.nbytes()), {}, kCPU);
  evaluator_of(kCPU).copy(
      out, Tensor(TensorImpl::create(std::move(given), dtype, sizes, out.impl().strides)));
  return out;
}

void to_bytes(const Tensor& t, void* out) { evaluator(t.device()).read(t, out); }

}  // namespace grapnel
