/// Adagrad: steps divided by the root of the sum of all squared gradients so far.
#pragma once

#include "grapnel/optim/optimizer_of.h"

namespace grapnel::optim {

class AdagradOptions : public OptionsOf<AdagradOptions> {
 public:
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}
  static void visit(auto&& self, auto&& v) {
    v("lr", self.lr_);
    v("lr_decay", self.lr_decay_);
    v("weight_decay", self.weight_decay_);
    v("initial_accumulator_value", self.initial_accumulator_value_);
    v("eps", self.eps_);
    v("maximize", self.maximize_);
  }
  void validate() const override;
  GRAPNEL_ARG(double, lr);
  GRAPNEL_ARG(double, lr_decay) = 0;
  GRAPNEL_ARG(double, weight_decay) = 0;
  GRAPNEL_ARG(double, initial_accumulator_value) = 0;
  GRAPNEL_ARG(double, eps) = 1e-10;
  GRAPNEL_ARG(bool, maximize) = false;
};

struct AdagradParamState : StateOf<AdagradParamState> {
  int64_t step = 0;
  Tensor sum;
  static void visit(auto&& self, auto&& v) {
    v("step", self.step);
    v("sum", self.sum);
  }
};

/// Steps scaled by the sum of squared gradients.
class Adagrad final : public OptimizerOf<AdagradOptions, AdagradParamState> {
 public:
  explicit Adagrad(std::vector<Tensor> params, const AdagradOptions& defaults = {})
      : OptimizerOf(std::move(params), defaults) {}
  explicit Adagrad(std::vector<OptimizerParamGroup> groups, const AdagradOptions& defaults = {})
      : OptimizerOf(std::move(groups), defaults) {}

 protected:
  Update update(const Tensor& param, const Tensor& grad, const AdagradOptions& options,
                AdagradParamState& state) override;
  bool gives_updates() const override { return true; }
};

}  // namespace grapnel::optim
