/// Stochastic gradient descent, with momentum.
#pragma once

#include "grapnel/optim/optimizer_of.h"

namespace grapnel::optim {

class SGDOptions : public OptionsOf<SGDOptions> {
 public:
  SGDOptions(double lr) : lr_(lr) {}
  static void visit(auto&& self, auto&& v) {
    v("lr", self.lr_);
    v("momentum", self.momentum_);
    v("dampening", self.dampening_);
    v("weight_decay", self.weight_decay_);
    v("nesterov", self.nesterov_);
    v("maximize", self.maximize_);
  }
  void validate() const override;
  GRAPNEL_ARG(double, lr);
  GRAPNEL_ARG(double, momentum) = 0;
  GRAPNEL_ARG(double, dampening) = 0;
  GRAPNEL_ARG(double, weight_decay) = 0;
  GRAPNEL_ARG(bool, nesterov) = false;
  GRAPNEL_ARG(bool, maximize) = false;
};

struct SGDParamState : StateOf<SGDParamState> {
  Tensor momentum_buffer;
  static void visit(auto&& self, auto&& v) { v("momentum_buffer", self.momentum_buffer); }
};

/// Gradient descent, with momentum if asked for.
class SGD final : public OptimizerOf<SGDOptions, SGDParamState> {
 public:
  using OptimizerOf::OptimizerOf;

 protected:
  Update update(const Tensor& param, const Tensor& grad, const SGDOptions& options,
                SGDParamState& state) override;
  bool gives_updates() const override { return true; }
};

}  // namespace grapnel::optim
