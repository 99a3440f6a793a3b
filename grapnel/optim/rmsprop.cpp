#include "grapnel/optim/rmsprop.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::optim {

void RMSpropOptions::validate() const {
  check_as<ValueError>(lr() >= 0, "RMSprop: the learning rate must not be negative, got ", lr(),
                       ".");
  check(alpha() >= 0 && eps() >= 0 && weight_decay() >= 0 && momentum() >= 0,
        "RMSprop: alpha, eps, weight_decay and momentum must not be negative, got ", alpha(), ", ",
        eps(), ", ", weight_decay(), " and ", momentum(), ".");
}

Update RMSprop::update(const Tensor& param, const Tensor& grad, const RMSpropOptions& o,
                       RMSpropParamState& state) {
  if (!state.square_avg.defined()) state.square_avg = zeros_like(param);
  if (o.centered() && !state.grad_avg.defined()) state.grad_avg = zeros_like(param);
  if (o.momentum() != 0 && !state.momentum_buffer.defined())
    state.momentum_buffer = zeros_like(param);
  ++state.step;
  return elementwise(
      [&o](const Tensor& p, const Tensor& g, const Tensor& squares, const Tensor& mean,
           const Tensor& buffer) {
        Tensor d = o.maximize() ? -g : g;
        if (o.weight_decay() != 0) d = d.add(p, o.weight_decay());
        squares.mul_(o.alpha()).addcmul_(d, d, 1 - o.alpha());
        Tensor average = squares;
        if (mean.defined()) {
          mean.lerp_(d, 1 - o.alpha());
          average = average.addcmul(mean, mean, -1);
        }
        average = average.sqrt().add_(o.eps());
        if (buffer.defined()) {
          buffer.mul_(o.momentum()).addcdiv_(d, average);
          p.add_(buffer, -o.lr());
        } else {
          p.addcdiv_(d, average, -o.lr());
        }
      },
      param, grad, state.square_avg, o.centered() ? state.grad_avg : Tensor(),
      o.momentum() != 0 ? state.momentum_buffer : Tensor());
}

}  // namespace grapnel::optim
