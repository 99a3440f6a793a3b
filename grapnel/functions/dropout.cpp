#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

/// What stays is scaled up, so that the expected value does not change and nothing has to be done
/// when training is over.
Tensor dropout(const Tensor& x, double p, bool training) {
  GRAPNEL_CALL_SITE;
  check(p >= 0 && p <= 1, "dropout: a probability lies between 0 and 1, got ", p, ".");
  if (!training || p == 0) return x;
  check(is_floating(x.dtype()), "dropout: not defined for ", x.dtype(),
        ".\nConvert first: x.to(kFloat32).");
  const Tensor kept = empty_like(x.detach());
  kept.bernoulli_(1 - p);
  if (p < 1) kept.mul_(1 / (1 - p));
  return x * kept;
}

}  // namespace grapnel
