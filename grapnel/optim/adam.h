/// Adam, and AdamW, which decays the weights apart from the gradient.
#pragma once

#include <tuple>

#include "grapnel/optim/optimizer_of.h"

namespace grapnel::optim {

/// Options of both; they differ in the default of weight_decay.
template <class Derived>
class AdamOptionsOf : public OptionsOf<Derived> {
 public:
  static void visit(auto&& self, auto&& v) {
    v("lr", self.lr_);
    v("beta1", std::get<0>(self.betas_));
    v("beta2", std::get<1>(self.betas_));
    v("eps", self.eps_);
    v("weight_decay", self.weight_decay_);
    v("amsgrad", self.amsgrad_);
    v("maximize", self.maximize_);
  }
  void validate() const override {
    const auto [beta1, beta2] = betas_;
    check(lr_ >= 0, "Adam: the learning rate must not be negative, got ", lr_, ".");
    check(eps_ >= 0, "Adam: eps must not be negative, got ", eps_, ".");
    check(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1,
          "Adam: both betas must be at least 0 and below 1, got ", beta1, " and ", beta2, ".");
    check(weight_decay_ >= 0, "Adam: weight_decay must not be negative, got ", weight_decay_, ".");
  }
  // Setters return the derived type, so that calls chain.
#define GRAPNEL_ADAM_ARG(Type, field)                     \
  Derived& field(Type value) {                            \
    field##_ = std::move(value);                          \
    return static_cast<Derived&>(*this);                  \
  }                                                       \
  const Type& field() const noexcept { return field##_; } \
  Type& field() noexcept { return field##_; }
  using Betas = std::tuple<double, double>;
  GRAPNEL_ADAM_ARG(double, lr)
  GRAPNEL_ADAM_ARG(Betas, betas)
  GRAPNEL_ADAM_ARG(double, eps)
  GRAPNEL_ADAM_ARG(double, weight_decay)
  GRAPNEL_ADAM_ARG(bool, amsgrad)
  GRAPNEL_ADAM_ARG(bool, maximize)
#undef GRAPNEL_ADAM_ARG

 protected:
  AdamOptionsOf(double lr, double weight_decay) : lr_(lr), weight_decay_(weight_decay) {}

 private:
  double lr_;
  Betas betas_{0.9, 0.999};
  double eps_ = 1e-8;
  double weight_decay_;
  bool amsgrad_ = false;
  bool maximize_ = false;
};

class AdamOptions : public AdamOptionsOf<AdamOptions> {
 public:
  AdamOptions(double lr = 1e-3) : AdamOptionsOf(lr, 0) {}
};
class AdamWOptions : public AdamOptionsOf<AdamWOptions> {
 public:
  AdamWOptions(double lr = 1e-3) : AdamOptionsOf(lr, 1e-2) {}
};

struct AdamParamState : StateOf<AdamParamState> {
  int64_t step = 0;
  Tensor exp_avg, exp_avg_sq, max_exp_avg_sq;
  static void visit(auto&& self, auto&& v) {
    v("step", self.step);
    v("exp_avg", self.exp_avg);
    v("exp_avg_sq", self.exp_avg_sq);
    v("max_exp_avg_sq", self.max_exp_avg_sq);
  }
};

/// Adam: steps scaled by running means of gradients and their squares.
class Adam final : public OptimizerOf<AdamOptions, AdamParamState> {
 public:
  explicit Adam(std::vector<Tensor> params, const AdamOptions& defaults = AdamOptions())
      : OptimizerOf(std::move(params), defaults) {}
  explicit Adam(std::vector<OptimizerParamGroup> groups,
                const AdamOptions& defaults = AdamOptions())
      : OptimizerOf(std::move(groups), defaults) {}

 protected:
  Update update(const Tensor& param, const Tensor& grad, const AdamOptions& options,
                AdamParamState& state) override;
  bool gives_updates() const override { return true; }
};

/// Adam with weight decay apart from the gradient.
class AdamW final : public OptimizerOf<AdamWOptions, AdamParamState> {
 public:
  explicit AdamW(std::vector<Tensor> params, const AdamWOptions& defaults = AdamWOptions())
      : OptimizerOf(std::move(params), defaults) {}
  explicit AdamW(std::vector<OptimizerParamGroup> groups,
                 const AdamWOptions& defaults = AdamWOptions())
      : OptimizerOf(std::move(groups), defaults) {}

 protected:
  Update update(const Tensor& param, const Tensor& grad, const AdamWOptions& options,
                AdamParamState& state) override;
  bool gives_updates() const override { return true; }
};

}  // namespace grapnel::optim
