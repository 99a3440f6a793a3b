#include "grapnel/optim/adam.h"

#include <cmath>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::optim {

namespace {

/// The common part: moves the averages by `grad` and the parameter by their quotient, after
/// before(parameter, gradient), which gives the gradient to use.
template <class Before>
Update adam_step(const Tensor& param, const Tensor& grad, const auto& o, AdamParamState& state,
                 const Before& before) {
  if (!state.exp_avg.defined()) {
    // Both or none, should memory run out.
    Tensor average = zeros_like(param), squares = zeros_like(param);
    state.exp_avg = std::move(average);
    state.exp_avg_sq = std::move(squares);
  }
  if (o.amsgrad() && !state.max_exp_avg_sq.defined()) state.max_exp_avg_sq = zeros_like(param);
  const auto betas = o.betas();
  const double beta1 = std::get<0>(betas), beta2 = std::get<1>(betas),
               step = static_cast<double>(++state.step);
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);

  return elementwise(
      [=, &o](const Tensor& p, const Tensor& g, const Tensor& average, const Tensor& squares,
              const Tensor& largest) {
        const Tensor d = before(p, g);
        average.lerp_(d, 1 - beta1);
        squares.mul_(beta2).addcmul_(d, d, 1 - beta2);
        if (largest.defined()) largest.copy_(maximum(largest, squares));
        const Tensor denominator =
            ((largest.defined() ? largest : squares).sqrt() / std::sqrt(correction2)).add_(o.eps());
        p.addcdiv_(average, denominator, -(o.lr() / correction1));
      },
      param, grad, state.exp_avg, state.exp_avg_sq, o.amsgrad() ? state.max_exp_avg_sq : Tensor());
}

}  // namespace

Update Adam::update(const Tensor& param, const Tensor& grad, const AdamOptions& o,
                    AdamParamState& state) {
  return adam_step(param, grad, o, state, [&o](const Tensor& p, const Tensor& g) {
    const Tensor d = o.maximize() ? -g : g;
    return o.weight_decay() != 0 ? d.add(p, o.weight_decay()) : d;
  });
}

Update AdamW::update(const Tensor& param, const Tensor& grad, const AdamWOptions& o,
                     AdamParamState& state) {
  return adam_step(param, grad, o, state, [&o](const Tensor& p, const Tensor& g) {
    if (o.weight_decay() != 0) p.mul_(1 - o.lr() * o.weight_decay());
    return o.maximize() ? -g : g;
  });
}

}  // namespace grapnel::optim
