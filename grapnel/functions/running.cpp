/// Running sums and products as the user calls them.
#include "grapnel/ops/defs/sort.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

Tensor Tensor::cumsum(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return apply<Cumsum>({wrap_dim(dim, shape().size(), "cumsum"), false}, *this);
}
Tensor Tensor::cumprod(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return apply<Cumprod>({wrap_dim(dim, shape().size(), "cumprod")}, *this);
}
Tensor cumsum(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return x.cumsum(dim);
}
Tensor cumprod(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return x.cumprod(dim);
}

}  // namespace grapnel
