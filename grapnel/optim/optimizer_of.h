/// The typed part of an optimiser: options and state listed once, saved and loaded by name.
#pragma once

#include "grapnel/base/arg.h"
#include "grapnel/optim/optimizer.h"

namespace grapnel::optim {

/// Derived has a static `visit(self, v)` that calls v("name", field) on every number, and an lr().
template <class Derived>
class OptionsOf : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(self());
  }
  double get_lr() const override { return self().lr(); }
  void set_lr(double lr) override { static_cast<Derived&>(*this).lr(lr); }
  std::map<std::string, Scalar> to_map() const override {
    std::map<std::string, Scalar> out;
    Derived::visit(self(), [&](const char* name, const auto& field) { out[name] = field; });
    return out;
  }
  void from_map(const std::map<std::string, Scalar>& values) override {
    Derived::visit(static_cast<Derived&>(*this), [&](const char* name, auto& field) {
      if (const auto it = values.find(name); it != values.end())
        field = it->second.to<std::decay_t<decltype(field)>>();
    });
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

/// Derived has a static `visit(self, v)` over its tensors and whole numbers. A parameter that was
/// never stepped has an empty state.
template <class Derived>
class StateOf : public OptimizerParamState {
 public:
  std::map<std::string, Entry> to_map() const override {
    std::map<std::string, Entry> out;
    Derived::visit(static_cast<const Derived&>(*this), [&](const char* name, const auto& field) {
      if constexpr (std::is_same_v<std::decay_t<decltype(field)>, Tensor>) {
        if (field.defined()) out.emplace(name, field);
      } else if (field != 0) {
        out.emplace(name, Scalar(field));
      }
    });
    return out;
  }
  void from_map(const std::map<std::string, Entry>& values) override {
    Derived::visit(static_cast<Derived&>(*this), [&](const char* name, auto& field) {
      using T = std::decay_t<decltype(field)>;
      constexpr bool tensor = std::is_same_v<T, Tensor>;
      field = T();
      const auto it = values.find(name);
      if (it == values.end()) return;
      check(std::holds_alternative<Tensor>(it->second) == tensor, "load_state_dict: ", name,
            tensor ? " is saved as a number, expected a tensor."
                   : " is saved as a tensor, expected a number.");
      if constexpr (tensor) field = std::get<Tensor>(it->second);
      else field = std::get<Scalar>(it->second).to<T>();
    });
  }
};

/// What optimisers with options and state of their own types share.
template <class Options, class State>
class OptimizerOf : public Optimizer {
 public:
  OptimizerOf(std::vector<OptimizerParamGroup> groups, const Options& defaults)
      : Optimizer(defaults.clone()) {
    defaults.validate();
    for (OptimizerParamGroup& group : groups) add_param_group(std::move(group));
  }
  OptimizerOf(std::vector<Tensor> params, const Options& defaults)
      : OptimizerOf(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))},
                    defaults) {}

  /// What is remembered about a parameter.
  State& state(const Tensor& param) { return static_cast<State&>(state_of(param)); }

 protected:
  /// Gives what is to be done to `param`, or does it and gives nothing; called with recording for
  /// backward off. elementwise() in update.h makes one.
  virtual Update update(const Tensor& param, const Tensor& grad, const Options& options,
                        State& state) = 0;

 private:
  std::unique_ptr<OptimizerParamState> make_state() const final {
    return std::make_unique<State>();
  }
  std::function<void()> restorer(const std::shared_ptr<OptimizerParamState>& state) const final {
    return [weak = std::weak_ptr(state), before = static_cast<const State&>(*state)] {
      if (const auto now = weak.lock()) static_cast<State&>(*now) = before;
    };
  }
  Update update(const Tensor& param, const Tensor& grad, const OptimizerOptions& options,
                OptimizerParamState& state) final {
    return update(param, grad, dynamic_cast<const Options&>(options), static_cast<State&>(state));
  }
};

}  // namespace grapnel::optim
