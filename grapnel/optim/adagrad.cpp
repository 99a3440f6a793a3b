#include "grapnel/optim/adagrad.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::optim {

void AdagradOptions::validate() const {
  check_as<ValueError>(lr() >= 0, "Adagrad: the learning rate must not be negative, got ", lr(),
                       ".");
  check(lr_decay() >= 0 && weight_decay() >= 0 && initial_accumulator_value() >= 0 && eps() >= 0,
        "Adagrad: lr_decay, weight_decay, initial_accumulator_value and eps must not be negative, "
        "got ",
        lr_decay(), ", ", weight_decay(), ", ", initial_accumulator_value(), " and ", eps(), ".");
}

Update Adagrad::update(const Tensor& param, const Tensor& grad, const AdagradOptions& o,
                       AdagradParamState& state) {
  if (!state.sum.defined()) state.sum = full_like(param, o.initial_accumulator_value());
  const double rate = o.lr() / (1 + static_cast<double>(state.step++) * o.lr_decay());
  return elementwise(
      [rate, &o](const Tensor& p, const Tensor& g, const Tensor& sum) {
        Tensor d = o.maximize() ? -g : g;
        if (o.weight_decay() != 0) d = d.add(p, o.weight_decay());
        sum.addcmul_(d, d);
        p.addcdiv_(d, sum.sqrt().add_(o.eps()), -rate);
      },
      param, grad, state.sum);
}

}  // namespace grapnel::optim
