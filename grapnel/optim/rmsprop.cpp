#include "grapnel/optim/rmsprop.h"

#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"

namespace grapnel::optim {

void RMSpropOptions::validate() const {
  check(lr() >= 0, "RMSprop: the learning rate must not be negative, got ", lr(), ".");
  check(alpha() >= 0 && eps() >= 0 && weight_decay() >= 0 && momentum() >= 0,
        "RMSprop: alpha, eps, weight_decay and momentum must not be negative, got ", alpha(), ", ",
        eps(), ", ", weight_decay(), " and ", momentum(), ".");
}

void RMSprop::update(const Tensor& param, const Tensor& grad, const RMSpropOptions& o,
                     RMSpropParamState& state) {
  if (!state.square_avg.defined()) state.square_avg = zeros_like(param);
  ++state.step;
  Tensor d = o.maximize() ? -grad : grad;
  if (o.weight_decay() != 0) d = d.add(param, o.weight_decay());
  state.square_avg.mul_(o.alpha()).addcmul_(d, d, 1 - o.alpha());
  Tensor average = state.square_avg;
  if (o.centered()) {
    if (!state.grad_avg.defined()) state.grad_avg = zeros_like(param);
    state.grad_avg.lerp_(d, 1 - o.alpha());
    average = average.addcmul(state.grad_avg, state.grad_avg, -1);
  }
  average = average.sqrt().add_(o.eps());
  if (o.momentum() == 0) {
    param.addcdiv_(d, average, -o.lr());
    return;
  }
  if (!state.momentum_buffer.defined()) state.momentum_buffer = zeros_like(param);
  state.momentum_buffer.mul_(o.momentum()).addcdiv_(d, average);
  param.add_(state.momentum_buffer, -o.lr());
}

}  // namespace grapnel::optim
