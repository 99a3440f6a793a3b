#include "grapnel/optim/sgd.h"

#include "grapnel/ops/functions.h"

namespace grapnel::optim {

void SGDOptions::validate() const {
  check(lr() >= 0, "SGD: the learning rate must not be negative, got ", lr(), ".");
  check(momentum() >= 0, "SGD: momentum must not be negative, got ", momentum(), ".");
  check(weight_decay() >= 0, "SGD: weight_decay must not be negative, got ", weight_decay(), ".");
  check(!nesterov() || (momentum() > 0 && dampening() == 0), "SGD: nesterov needs momentum and no dampening, got momentum ", momentum(), " and dampening ",
        dampening(), ".");
}

void SGD::update(const Tensor& param, const Tensor& grad, const SGDOptions& o, SGDParamState& state) {
  Tensor d = o.maximize() ? -grad : grad;
  if (o.weight_decay() != 0) d = d.add(param, o.weight_decay());
  if (o.momentum() != 0) {
    Tensor& buffer = state.momentum_buffer;
    // The first step starts from the gradient itself, undampened.
    if (!buffer.defined()) buffer = d.clone();
    else buffer.mul_(o.momentum()).add_(d, 1 - o.dampening());
    d = o.nesterov() ? d.add(buffer, o.momentum()) : buffer;
  }
  param.add_(d, -o.lr());
}

}  // namespace grapnel::optim
