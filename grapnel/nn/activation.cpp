#include "grapnel/nn/activation.h"

#include "grapnel/functions/factories.h"

namespace grapnel::nn {

void PReLUImpl::reset() {
  check(options.num_parameters() > 0, "PReLU: num_parameters must be positive, got ",
        options.num_parameters(), ".");
  weight = register_parameter("weight", full({options.num_parameters()}, options.init()));
}

Tensor PReLUImpl::forward(const Tensor& x) {
  Tensor slope = weight;
  if (options.num_parameters() > 1) {
    check(x.dim() >= 2 && x.size(1) == options.num_parameters(), "PReLU: there are ",
          options.num_parameters(), " weights, one per channel, but x is ", x.shape(), ".");
    Shape column = Shape::filled(static_cast<int>(x.dim()) - 1, 1);
    column[0] = options.num_parameters();
    slope = weight.view(column);
  }
  return where(x > 0, x, slope * x);
}

Tensor GLUImpl::forward(const Tensor& x) {
  const int64_t size = x.size(options.dim());
  check(size % 2 == 0, "GLU: dimension ", options.dim(),
        " must have an even size to be halved, x is ", x.shape(), ".");
  return x.narrow(options.dim(), 0, size / 2) *
         x.narrow(options.dim(), size / 2, size / 2).sigmoid();
}

}  // namespace grapnel::nn
