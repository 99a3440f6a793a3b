#include "grapnel/optim/adagrad.h"

#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"

namespace grapnel::optim {

void AdagradOptions::validate() const {
  check(lr() >= 0, "Adagrad: the learning rate must not be negative, got ", lr(), ".");
  check(lr_decay() >= 0 && weight_decay() >= 0 && initial_accumulator_value() >= 0 && eps() >= 0,
        "Adagrad: lr_decay, weight_decay, initial_accumulator_value and eps must not be negative, "
        "got ",
        lr_decay(), ", ", weight_decay(), ", ", initial_accumulator_value(), " and ", eps(), ".");
}

void Adagrad::update(const Tensor& param, const Tensor& grad, const AdagradOptions& o,
                     AdagradParamState& state) {
  if (!state.sum.defined()) state.sum = full_like(param, o.initial_accumulator_value());
  const auto before = static_cast<double>(state.step++);
  Tensor d = o.maximize() ? -grad : grad;
  if (o.weight_decay() != 0) d = d.add(param, o.weight_decay());
  state.sum.addcmul_(d, d);
  param.addcdiv_(d, state.sum.sqrt().add_(o.eps()), -o.lr() / (1 + before * o.lr_decay()));
}

}  // namespace grapnel::optim
