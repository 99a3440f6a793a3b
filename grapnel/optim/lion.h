/// Lion (Chen et al. 2023): steps of one size in the direction of the sign of an averaged gradient.
#pragma once

#include <tuple>

#include "grapnel/optim/optimizer_of.h"

namespace grapnel::optim {

class LionOptions : public OptionsOf<LionOptions> {
 public:
  LionOptions(double lr = 1e-4) : lr_(lr) {}
  static void visit(auto&& self, auto&& v) {
    v("lr", self.lr_);
    v("beta1", std::get<0>(self.betas_));
    v("beta2", std::get<1>(self.betas_));
    v("weight_decay", self.weight_decay_);
    v("maximize", self.maximize_);
  }
  void validate() const override;
  using Betas = std::tuple<double, double>;
  GRAPNEL_ARG(double, lr);
  /// How much of the average is in the step, and how much of it is kept.
  GRAPNEL_ARG(Betas, betas) = { 0.9, 0.99 };
  /// Apart from the gradient, as in AdamW.
  GRAPNEL_ARG(double, weight_decay) = 0;
  GRAPNEL_ARG(bool, maximize) = false;
};

struct LionParamState : StateOf<LionParamState> {
  Tensor exp_avg;
  static void visit(auto&& self, auto&& v) { v("exp_avg", self.exp_avg); }
};

/// Steps by the sign of a running mean.
class Lion final : public OptimizerOf<LionOptions, LionParamState> {
 public:
  explicit Lion(std::vector<Tensor> params, const LionOptions& defaults = {})
      : OptimizerOf(std::move(params), defaults) {}
  explicit Lion(std::vector<OptimizerParamGroup> groups, const LionOptions& defaults = {})
      : OptimizerOf(std::move(groups), defaults) {}

 protected:
  Update update(const Tensor& param, const Tensor& grad, const LionOptions& options,
                LionParamState& state) override;
  bool gives_updates() const override { return true; }
};

}  // namespace grapnel::optim
