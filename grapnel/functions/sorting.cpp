/// Sorting and extremes as the user calls them.
#include "grapnel/ops/defs/sort.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

TensorPair pair_of(Outputs out) { return {std::move(out[0]), std::move(out[1])}; }

template <class D>
Tensor arg_extreme(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  if (dim) return apply<D>({wrap_dim(*dim, x.shape().size(), D::name.data()), keepdim}, x);
  check(x.numel() > 0, D::name, ": a tensor without elements has no extreme (shape ", x.shape(),
        ").");
  const Tensor position = apply<D>({0, false}, x.reshape({-1}));
  return keepdim ? position.reshape(Shape::filled(x.shape().size(), 1)) : position;
}

}  // namespace

TensorPair Tensor::sort(int64_t dim, bool descending) const {
  GRAPNEL_CALL_SITE;
  return pair_of(apply_all<Sort>({wrap_dim(dim, shape().size(), "sort"), descending}, *this));
}
Tensor Tensor::argsort(int64_t dim, bool descending) const {
  GRAPNEL_CALL_SITE;
  return std::get<1>(sort(dim, descending));
}
TensorPair Tensor::topk(int64_t k, int64_t dim, bool largest, bool) const {
  GRAPNEL_CALL_SITE;
  const int at = wrap_dim(dim, shape().size(), "topk");
  return pair_of(apply_all<Topk>({k, at, largest}, *this));
}
TensorPair Tensor::max(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return pair_of(apply_all<MaxAlong>({wrap_dim(dim, shape().size(), "max"), keepdim}, *this));
}
TensorPair Tensor::min(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return pair_of(apply_all<MinAlong>({wrap_dim(dim, shape().size(), "min"), keepdim}, *this));
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return arg_extreme<Argmax>(*this, dim, keepdim);
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return arg_extreme<Argmin>(*this, dim, keepdim);
}

TensorPair sort(const Tensor& x, int64_t dim, bool descending) {
  GRAPNEL_CALL_SITE;
  return x.sort(dim, descending);
}
TensorPair topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool ordered) {
  GRAPNEL_CALL_SITE;
  return x.topk(k, dim, largest, ordered);
}
TensorPair max(const Tensor& x, int64_t dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.max(dim, keepdim);
}
TensorPair min(const Tensor& x, int64_t dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.min(dim, keepdim);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.argmax(dim, keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.argmin(dim, keepdim);
}

}  // namespace grapnel
