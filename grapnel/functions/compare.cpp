/// Whole tensors as one answer: item, equal, allclose.
#include "grapnel/functions/functions.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace {

bool all_hold(const Tensor& mask) {
  const ReduceAttrs everything{.dims = wrap_dims({}, static_cast<int>(mask.dim()), "all"),
                               .keepdim = false};
  return apply<All>(everything, mask).item<bool>();
}

}  // namespace

Scalar Tensor::item() const {
  GRAPNEL_CALL_SITE;
  check(numel() == 1, "item: the tensor has ", numel(), " elements (shape ", shape(),
        "), not one.\nSelect one first, e.g. t[0].item().");
  const record::Reading reading("item");
  return visit_dtype(dtype(), [&]<class T>() {
    T value;
    evaluator(device()).read(*this, &value);
    return Scalar(value);
  });
}

bool equal(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  const record::Reading reading("equal");
  return a.shape() == b.shape() && all_hold(apply<Eq>(a, b));
}
bool Tensor::equal(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return grapnel::equal(*this, other);
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  GRAPNEL_CALL_SITE;
  const record::Reading reading("allclose");
  check(rtol >= 0 && atol >= 0, "allclose: tolerances must not be negative, got rtol ", rtol,
        " and atol ", atol, ".");
  // In f64 the tolerances are what they say, also for narrow types and integers.
  auto wide = [](const Tensor& t) {
    Tensor w(TensorImpl::empty(t.shape(), kFloat64, t.device()));
    copy_elements(w, t);
    return w;
  };
  const Tensor x = wide(a), y = wide(b);
  // Equal infinities are close; the difference of others is infinite or NaN and never is.
  Tensor close = (x == y) | (((x - y).abs() <= y.abs() * rtol + atol) & isfinite(y));
  if (equal_nan) close = close | (isnan(x) & isnan(y));
  return all_hold(close);
}
bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  GRAPNEL_CALL_SITE;
  return grapnel::allclose(*this, other, rtol, atol, equal_nan);
}

}  // namespace grapnel
