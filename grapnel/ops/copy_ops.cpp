/// What may be copied over what, and where to; values of the host as tensors, and back.
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

Device ToDeviceAttrs::device() const {
  const bool good = type == 0 ? index == 0 : type == 1 && index >= 0 && index < kMostDevices;
  check(good, "to_device: there is no device of type ", type, " with number ", index, ".");
  return {static_cast<DeviceType>(type), static_cast<int>(index)};
}

void Copy::infer(Inputs in, const Attrs&, Specs& out) {
  const Shape &to = in[0]->shape(), &from = in[1]->shape();
  bool fits = from.size() <= to.size();
  for (int i = 1; fits && i <= from.size(); ++i)
    fits = from[from.size() - i] == 1 || from[from.size() - i] == to[to.size() - i];
  check(fits, "copy_: a source of shape ", from, " does not broadcast to the target's shape ", to,
        ".");
  out.push_back({to, in[0]->dtype(), in[0]->device()});
}

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
