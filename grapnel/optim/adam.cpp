#include "grapnel/optim/adam.h"

#include <cmath>

#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"

namespace grapnel::optim {

namespace {

/// The common part: moves the averages by `grad` and the parameter by their quotient.
void adam_step(const Tensor& param, const Tensor& grad, const auto& o, AdamParamState& state) {
  const auto [beta1, beta2] = o.betas();
  if (!state.exp_avg.defined()) {
    state.exp_avg = zeros_like(param);
    state.exp_avg_sq = zeros_like(param);
  }
  if (o.amsgrad() && !state.max_exp_avg_sq.defined()) state.max_exp_avg_sq = zeros_like(param);
  const double step = static_cast<double>(++state.step);
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);

  state.exp_avg.lerp_(grad, 1 - beta1);
  state.exp_avg_sq.mul_(beta2).addcmul_(grad, grad, 1 - beta2);
  if (o.amsgrad()) state.max_exp_avg_sq.copy_(maximum(state.max_exp_avg_sq, state.exp_avg_sq));
  const Tensor& second = o.amsgrad() ? state.max_exp_avg_sq : state.exp_avg_sq;
  const Tensor denominator = (second.sqrt() / std::sqrt(correction2)).add_(o.eps());
  param.addcdiv_(state.exp_avg, denominator, -(o.lr() / correction1));
}

}  // namespace

void Adam::update(const Tensor& param, const Tensor& grad, const AdamOptions& o, AdamParamState& state) {
  Tensor d = o.maximize() ? -grad : grad;
  if (o.weight_decay() != 0) d = d.add(param, o.weight_decay());
  adam_step(param, d, o, state);
}

void AdamW::update(const Tensor& param, const Tensor& grad, const AdamWOptions& o, AdamParamState& state) {
  if (o.weight_decay() != 0) param.mul_(1 - o.lr() * o.weight_decay());
  adam_step(param, o.maximize() ? -grad : grad, o, state);
}

}  // namespace grapnel::optim
