#include "grapnel/nn/activation.h"

#include "grapnel/functions/factories.h"

namespace grapnel::nn {

void PReLUImpl::reset() {
  check(options.num_parameters() > 0, "PReLU: num_parameters must be positive, got ",
        options.num_parameters(), ".");
  weight = register_parameter("weight", full({options.num_parameters()}, options.init()));
}

Tensor PReLUImpl::forward(const Tensor& x) { return prelu(x, weight); }

Tensor GLUImpl::forward(const Tensor& x) { return glu(x, options.dim()); }

}  // namespace grapnel::nn
