/// gather and scatter as the user calls them.
#include "grapnel/functions/assign.h"
#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// The part of the source that has a position.
Tensor positioned_part(const Tensor& source, const Tensor& index, const char* op) {
  if (source.shape() == index.shape()) return source;
  bool fits = source.shape().size() == index.shape().size();
  for (int d = 0; fits && d < index.shape().size(); ++d)
    fits = source.shape()[d] >= index.shape()[d];
  check(fits, op, ": the index of shape ", index.shape(), " is larger than the source of shape ",
        source.shape(), ".");
  Tensor part = source;
  for (int d = 0; d < index.shape().size(); ++d)
    if (part.shape()[d] != index.shape()[d]) part = part.narrow(d, 0, index.shape()[d]);
  return part;
}

DimAttrs along(const Tensor& x, int64_t dim, const char* op) {
  return {wrap_dim(dim, x.shape().size(), op)};
}
Tensor spread(const Scalar& value, const Tensor& x, const Tensor& index) {
  return scalar_tensor(value, x.options()).expand(index.shape());
}

}  // namespace

Tensor Tensor::gather(int64_t dim, const Tensor& index) const {
  GRAPNEL_CALL_SITE;
  return picked_copy(apply<Gather>(along(*this, dim, "gather"), *this, index));
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply<Scatter>(along(*this, dim, "scatter"), *this, index,
                        positioned_part(source, index, "scatter"));
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return apply<Scatter>(along(*this, dim, "scatter"), *this, index, spread(value, *this, index));
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<Scatter>(along(*this, dim, "scatter_"), *this, index,
                                positioned_part(source, index, "scatter_"));
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<Scatter>(along(*this, dim, "scatter_"), *this, index,
                                spread(value, *this, index));
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply<ScatterAdd>(along(*this, dim, "scatter_add"), *this, index,
                           positioned_part(source, index, "scatter_add"));
}
Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<ScatterAdd>(along(*this, dim, "scatter_add_"), *this, index,
                                   positioned_part(source, index, "scatter_add_"));
}
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  GRAPNEL_CALL_SITE;
  return x.gather(dim, index);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  GRAPNEL_CALL_SITE;
  return x.scatter(dim, index, source);
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  GRAPNEL_CALL_SITE;
  return x.scatter_add(dim, index, source);
}

}  // namespace grapnel
