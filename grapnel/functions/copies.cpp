/// Copies as users call them: clone, conversion, writing over, repeating, turning around.
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

Tensor Tensor::clone() const {
  GRAPNEL_CALL_SITE;
  return apply<Clone>(*this);
}
Tensor clone(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return apply<Clone>(x);
}
Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  GRAPNEL_CALL_SITE;
  return apply<Clone>(*this);
}

Tensor Tensor::to(DType dtype) const {
  if (this->dtype() == dtype) return *this;
  GRAPNEL_CALL_SITE;
  return apply<Convert>({dtype}, *this);
}
Tensor Tensor::to(const TensorOptions& options) const {
  GRAPNEL_CALL_SITE;
  check(!options.requires_grad(),
        "to: requires_grad is not something to convert to.\nCall set_requires_grad on the result.");
  return to(options.device_or(device()), options.dtype_or(dtype()));
}
Tensor Tensor::to(const TensorOptions& options, bool /*non_blocking*/, bool copy) const {
  GRAPNEL_CALL_SITE;
  const Tensor out = to(options);
  return copy && out.is_same(*this) ? clone() : out;
}
Tensor Tensor::to(Device device) const {
  if (this->device() == device) return *this;
  GRAPNEL_CALL_SITE;
  evaluator_of(device);  // or it says that there is no such device
  return apply<ToDevice>({device}, *this);
}

Tensor& Tensor::copy_(const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  if (is_same(source)) return const_cast<Tensor&>(*this);
  return apply_inplace<Copy>(*this, source);
}
Tensor& Tensor::fill_(const Tensor& value) const {
  GRAPNEL_CALL_SITE;
  check(value.dim() == 0, "fill_: the value must be a number or a 0-dimensional tensor, got shape ",
        value.shape(), ".\nUse copy_ to write several values.");
  return apply_inplace<Fill>(*this, value);
}
Tensor& Tensor::fill_(const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<Fill>(*this, wrap_number(value));
}
Tensor& Tensor::zero_() const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<Fill>(*this, wrap_number(0));
}

Tensor Tensor::repeat(IntArrayRef repeats) const {
  GRAPNEL_CALL_SITE;
  check(repeats.size() >= static_cast<size_t>(dim()), "repeat: ", repeats, " has ", repeats.size(),
        " counts, but the tensor has ", dim(), " dimensions (shape ", shape(),
        ").\nGive one count per dimension; more in front add dimensions.");
  for (int64_t r : repeats)
    check(r >= 0, "repeat: counts must not be negative, got ", repeats, ".");
  Shape sizes = shape();
  while (sizes.size() < static_cast<int>(repeats.size())) sizes.insert(0, 1);
  Tensor out = reshape(sizes);
  for (int i = sizes.size() - 1; i >= 0; --i) {
    const int64_t count = repeats[static_cast<size_t>(i)];
    if (count == 1) continue;
    // A new dimension of that many equal entries, merged with the one it repeats.
    Shape repeated = sizes;
    repeated.insert(i, count);
    sizes[i] = checked_mul(sizes[i], count, "repeat");
    out = out.unsqueeze(i).expand(repeated).reshape(sizes);
  }
  // A dimension of size 1 needs no copy to be repeated, but the result must have memory of its own.
  return out.is_alias_of(*this) ? out.clone() : out.contiguous();
}

Tensor Tensor::flip(IntArrayRef dims) const {
  GRAPNEL_CALL_SITE;
  if (dims.empty()) return clone();
  return apply<Flip>({wrap_dims(dims, shape().size(), "flip")}, *this);
}
Tensor flip(const Tensor& x, IntArrayRef dims) {
  GRAPNEL_CALL_SITE;
  return x.flip(dims);
}

Tensor Tensor::roll(int64_t shift, int64_t dim) const {
  GRAPNEL_CALL_SITE;
  const int at = wrap_dim(dim, shape().size(), "roll");
  const int64_t size = this->dim() == 0 ? 1 : shape()[at];
  if (size <= 1) return clone();
  const int64_t start = (size - shift % size) % size;
  if (start == 0) return clone();
  const Tensor parts[] = {slice(at, start), slice(at, 0, start)};
  return cat(parts, at);
}

}  // namespace grapnel
