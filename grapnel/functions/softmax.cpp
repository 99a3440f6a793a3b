/// Softmax and its logarithm as users call them.
#include "grapnel/ops/defs/softmax.h"

#include "grapnel/functions/functions.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

template <class D>
Tensor along(const Tensor& x, int64_t dim) {
  return apply<D>({.dim = wrap_dim(dim, static_cast<int>(x.dim()), D::name.data())}, x);
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return softmax(autocast::wide(x), dim);
  return along<Softmax>(x, dim);
}
Tensor log_softmax(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return log_softmax(autocast::wide(x), dim);
  return along<LogSoftmax>(x, dim);
}
Tensor Tensor::softmax(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::softmax(*this, dim);
}
Tensor Tensor::log_softmax(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::log_softmax(*this, dim);
}

}  // namespace grapnel
