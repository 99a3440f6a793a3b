#include "grapnel/optim/lion.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::optim {

void LionOptions::validate() const {
  const auto [beta1, beta2] = betas();
  check_as<ValueError>(lr() >= 0, "Lion: the learning rate must not be negative, got ", lr(), ".");
  check(beta1 >= 0 && beta1 <= 1 && beta2 >= 0 && beta2 <= 1,
        "Lion: both betas must be between 0 and 1, got ", beta1, " and ", beta2, ".");
  check_as<ValueError>(weight_decay() >= 0, "Lion: weight_decay must not be negative, got ",
                       weight_decay(), ".");
}

Update Lion::update(const Tensor& param, const Tensor& grad, const LionOptions& o,
                    LionParamState& state) {
  if (!state.exp_avg.defined()) state.exp_avg = zeros_like(param);
  return elementwise(
      [&o](const Tensor& p, const Tensor& g, const Tensor& average) {
        const auto [beta1, beta2] = o.betas();
        const Tensor d = o.maximize() ? -g : g;
        if (o.weight_decay() != 0) p.mul_(1 - o.lr() * o.weight_decay());
        p.add_(average.lerp(d, 1 - beta1).sign_(), -o.lr());
        average.lerp_(d, 1 - beta2);
      },
      param, grad, state.exp_avg);
}

}  // namespace grapnel::optim
