/// The typed part of an optimiser: options and state listed once, saved and loaded by name.
#pragma once

#include "grapnel/base/arg.h"
#include "grapnel/optim/optimizer.h"

namespace grapnel::optim {

namespace detail {
using Numbers = std::map<std::string, Scalar>;
using Entries = std::map<std::string, OptimizerParamState::Entry>;
// Not templates, since every program makes the classes below for every optimiser.
void save_number(Numbers& out, const char* name, const Scalar& value);
/// Null if there is none.
const Scalar* find_number(const Numbers& values, const char* name);
/// What is 0 or undefined is left out.
void save_entry(Entries& out, const char* name, const Tensor& value);
void save_entry(Entries& out, const char* name, const Scalar& value);
/// An undefined tensor or 0 where there is none; throws if it is saved as the other.
Tensor tensor_entry(const Entries& values, const char* name);
Scalar number_entry(const Entries& values, const char* name);
}  // namespace detail

/// Derived has a static `visit(self, v)` that calls v("name", field) on every number, and an lr().
template <class Derived>
class OptionsOf : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::unique_ptr<OptimizerOptions>(new Derived(self()));
  }
  double get_lr() const override { return self().lr(); }
  void set_lr(double lr) override { static_cast<Derived&>(*this).lr(lr); }
  std::map<std::string, Scalar> to_map() const override {
    std::map<std::string, Scalar> out;
    Derived::visit(self(), [&](const char* name, const auto& field) {
      detail::save_number(out, name, field);
    });
    return out;
  }
  void from_map(const std::map<std::string, Scalar>& values) override {
    Derived::visit(static_cast<Derived&>(*this), [&](const char* name, auto& field) {
      if (const Scalar* saved = detail::find_number(values, name))
        field = saved->to<std::decay_t<decltype(field)>>();
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
      detail::save_entry(out, name, field);
    });
    return out;
  }
  void from_map(const std::map<std::string, Entry>& values) override {
    Derived::visit(static_cast<Derived&>(*this), [&](const char* name, auto& field) {
      using T = std::decay_t<decltype(field)>;
      if constexpr (std::is_same_v<T, Tensor>) field = detail::tensor_entry(values, name);
      else field = detail::number_entry(values, name).to<T>();
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
    return std::unique_ptr<OptimizerParamState>(new State);
  }
  std::unique_ptr<OptimizerParamState> copy_of(const OptimizerParamState& state) const final {
    return std::unique_ptr<OptimizerParamState>(new State(static_cast<const State&>(state)));
  }
  void assign(OptimizerParamState& to, const OptimizerParamState& from) const final {
    static_cast<State&>(to) = static_cast<const State&>(from);
  }
  Update update(const Tensor& param, const Tensor& grad, const OptimizerOptions& options,
                OptimizerParamState& state) final {
    return update(param, grad, dynamic_cast<const Options&>(options), static_cast<State&>(state));
  }
};

}  // namespace grapnel::optim
