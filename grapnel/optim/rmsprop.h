/// RMSprop: steps divided by a running root mean square of the gradient.
#pragma once

#include "grapnel/optim/optimizer_of.h"

namespace grapnel::optim {

class RMSpropOptions : public OptionsOf<RMSpropOptions> {
 public:
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}
  static void visit(auto&& self, auto&& v) {
    v("lr", self.lr_);
    v("alpha", self.alpha_);
    v("eps", self.eps_);
    v("weight_decay", self.weight_decay_);
    v("momentum", self.momentum_);
    v("centered", self.centered_);
    v("maximize", self.maximize_);
  }
  void validate() const override;
  GRAPNEL_ARG(double, lr);
  GRAPNEL_ARG(double, alpha) = 0.99;
  GRAPNEL_ARG(double, eps) = 1e-8;
  GRAPNEL_ARG(double, weight_decay) = 0;
  GRAPNEL_ARG(double, momentum) = 0;
  /// Divides by the deviation instead of the root mean square.
  GRAPNEL_ARG(bool, centered) = false;
  GRAPNEL_ARG(bool, maximize) = false;
};

struct RMSpropParamState : StateOf<RMSpropParamState> {
  int64_t step = 0;
  Tensor square_avg, momentum_buffer, grad_avg;
  static void visit(auto&& self, auto&& v) {
    v("step", self.step);
    v("square_avg", self.square_avg);
    v("momentum_buffer", self.momentum_buffer);
    v("grad_avg", self.grad_avg);
  }
};

/// Steps scaled by a running mean of squared gradients.
class RMSprop final : public OptimizerOf<RMSpropOptions, RMSpropParamState> {
 public:
  explicit RMSprop(std::vector<Tensor> params, const RMSpropOptions& defaults = {})
      : OptimizerOf(std::move(params), defaults) {}
  explicit RMSprop(std::vector<OptimizerParamGroup> groups, const RMSpropOptions& defaults = {})
      : OptimizerOf(std::move(groups), defaults) {}

 protected:
  Update update(const Tensor& param, const Tensor& grad, const RMSpropOptions& options,
                RMSpropParamState& state) override;
  bool gives_updates() const override { return true; }
};

}  // namespace grapnel::optim
