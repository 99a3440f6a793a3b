/// Tensors that change their own sizes.
#include <algorithm>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

namespace {

/// `x` becomes what `view` is. What was recorded with the old sizes must not be read with the new
/// ones, so that counts as a change of values.
Tensor& become(const char* op, const Tensor& x, const Tensor& view) {
  check(!x.requires_grad(), op, ": a tensor that requires grad cannot get other sizes in place.\n",
        "Take the result of the function without the underscore, or detach() first.");
  x.set_data(view.detach());
  x.impl().storage->bump_version();
  return const_cast<Tensor&>(x);
}

}  // namespace

Tensor& Tensor::unsqueeze_(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return become("unsqueeze_", *this, unsqueeze(dim));
}
Tensor& Tensor::squeeze_() const {
  GRAPNEL_CALL_SITE;
  return become("squeeze_", *this, squeeze());
}
Tensor& Tensor::squeeze_(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return become("squeeze_", *this, squeeze(dim));
}
Tensor& Tensor::t_() const {
  GRAPNEL_CALL_SITE;
  return become("t_", *this, t());
}
Tensor& Tensor::transpose_(int64_t dim0, int64_t dim1) const {
  GRAPNEL_CALL_SITE;
  return become("transpose_", *this, transpose(dim0, dim1));
}

Tensor& Tensor::resize_(IntArrayRef sizes) const {
  GRAPNEL_CALL_SITE;
  int64_t elements = 1;
  for (const int64_t n : sizes) {
    check(n >= 0, "resize_: sizes must not be negative, got ", sizes, ".");
    elements = checked_mul(elements, n, "resize_");
  }
  Shape strides;
  strides.assign_contiguous(Shape(std::span<const int64_t>(sizes)));
  const auto held =
      static_cast<int64_t>(impl().storage->bytes() / element_size()) - storage_offset();
  if (elements <= held)
    return become("resize_", *this, as_strided(sizes, strides, storage_offset()));
  const Tensor larger = empty({elements}, options());
  // An expanded tensor has more elements than memory, and may be asked for fewer than it has.
  const int64_t kept = std::min(elements, numel());
  larger.narrow(0, 0, kept).copy_(reshape({-1}).narrow(0, 0, kept).detach());
  return become("resize_", *this, larger.view(sizes));
}
Tensor& Tensor::resize_as_(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return resize_(other.sizes());
}

}  // namespace grapnel
