/// Optimizer: groups of parameters, each with options, and what is remembered per parameter.
/// LibTorch's names.
///
///   optim::SGD opt(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
///   opt.zero_grad();  loss.backward();  opt.step();
///
/// step_param(p) steps a single parameter, which is what an optimiser inside backward needs:
///
///   p.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
///     opt.step_param(leaf);
///     leaf.reset_grad();
///   });
///
/// A new optimiser derives from OptimizerOf<Options, State> in optimizer_of.h and writes one
/// function: the update of a parameter.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "grapnel/optim/optimizer_hooks.h"
#include "grapnel/optim/update.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::optim {

/// Numbers that steer an optimiser, one set per group of parameters.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  /// All numbers by name, for saving; and back. Names that are missing keep their value.
  virtual std::map<std::string, Scalar> to_map() const = 0;
  virtual void from_map(const std::map<std::string, Scalar>& values) = 0;
  /// Throws when a number is out of range.
  virtual void validate() const = 0;
};

/// Parameters that share options.
class OptimizerParamGroup {
 public:
  /// Without options the group takes the optimiser's defaults.
  OptimizerParamGroup(std::vector<Tensor> params,
                      std::unique_ptr<OptimizerOptions> options = nullptr)
      : params_(std::move(params)), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& other)
      : params_(other.params_), options_(other.options_ ? other.options_->clone() : nullptr) {}
  OptimizerParamGroup(OptimizerParamGroup&&) = default;
  OptimizerParamGroup& operator=(OptimizerParamGroup other) {
    std::swap(params_, other.params_);
    std::swap(options_, other.options_);
    return *this;
  }
  bool has_options() const { return options_ != nullptr; }
  /// Throws while the group has none.
  OptimizerOptions& options() {
    return const_cast<OptimizerOptions&>(std::as_const(*this).options());
  }
  const OptimizerOptions& options() const {
    check(options_ != nullptr,
          "options: this group of parameters has none yet; it gets the optimiser's defaults with "
          "add_param_group, or at the next step.");
    return *options_;
  }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
};

/// What is remembered about one parameter between steps.
class OptimizerParamState {
 public:
  virtual ~OptimizerParamState() = default;
  using Entry = std::variant<Scalar, Tensor>;
  /// Empty before the first step.
  virtual std::map<std::string, Entry> to_map() const = 0;
  virtual void from_map(const std::map<std::string, Entry>& values) = 0;
};

/// Everything needed to go on where an optimiser stopped. Parameters go by number, counted through
/// the groups.
struct OptimizerStateDict {
  /// Options and parameters of one group.
  struct Group {
    std::map<std::string, Scalar> options;
    std::vector<int64_t> params;
  };
  std::map<int64_t, std::map<std::string, OptimizerParamState::Entry>> state;
  std::vector<Group> param_groups;
};

/// Base of optimisers: parameter groups, state, hooks around a step.
class Optimizer {
 public:
  /// Computes the loss anew, gradients included; returns it.
  using LossClosure = std::function<Tensor()>;

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient, between the step hooks. Returns what the closure
  /// returned.
  Tensor step(LossClosure closure = nullptr);
  /// While recording: a step that has not happened if `skip` (bool, 0-dimensional) is true when the
  /// graph runs. False, and nothing is recorded, if that must be known at once: for step hooks,
  /// which would have to be called or not, and for optimisers that look at values themselves.
  bool record_step_unless(const Tensor& skip);
  /// Updates one parameter if it has a gradient, without step hooks. The result has the same bits
  /// as in step().
  void step_param(const Tensor& param);
  /// The same with a gradient that is not in grad(), such as one averaged over ranks.
  void step_param(const Tensor& param, const Tensor& grad);
  void zero_grad(bool set_to_none = true);

  /// The parameters must be leaves and in no group yet.
  void add_param_group(OptimizerParamGroup group);
  /// Groups and their lists may be changed: the next step takes parameters that are new without a
  /// state, and forgets those that are gone.
  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  OptimizerOptions& defaults() { return *defaults_; }
  /// Number of parameters in all groups.
  size_t size() const;

  OptimizerStateDict state_dict();
  /// Checks everything first; if something does not fit, nothing is changed.
  void load_state_dict(const OptimizerStateDict& state_dict);

  /// `hook(optimizer)` or `hook(optimizer, const LossClosure&)`; may return a closure to use
  /// instead.
  template <class F>
  HookHandle register_step_pre_hook(F&& hook, HookOptions o = {}) {
    return hooks_.step_pre.add(HookKind::step_pre,
                               detail::make_step_pre_hook(std::forward<F>(hook)), std::move(o));
  }
  /// `hook(optimizer)`; what it returns is ignored.
  template <class F>
  HookHandle register_step_post_hook(F&& hook, HookOptions o = {}) {
    return hooks_.step_post.add(HookKind::step_post, detail::make_plain_hook(std::forward<F>(hook)),
                                std::move(o));
  }
  /// `hook(optimizer)`, before saving.
  template <class F>
  HookHandle register_state_dict_pre_hook(F&& hook, HookOptions o = {}) {
    return hooks_.save_pre.add(HookKind::state_dict_pre,
                               detail::make_plain_hook(std::forward<F>(hook)), std::move(o));
  }
  /// `hook(optimizer, OptimizerStateDict&)`, after saving; changes it or returns another.
  template <class F>
  HookHandle register_state_dict_post_hook(F&& hook, HookOptions o = {}) {
    return hooks_.save_post.add(HookKind::state_dict_post,
                                detail::make_dict_hook(std::forward<F>(hook)), std::move(o));
  }
  /// `hook(optimizer, OptimizerStateDict&)`, before loading a copy of what was passed; changes it
  /// or returns another.
  template <class F>
  HookHandle register_load_state_dict_pre_hook(F&& hook, HookOptions o = {}) {
    return hooks_.load_pre.add(HookKind::load_state_dict_pre,
                               detail::make_dict_hook(std::forward<F>(hook)), std::move(o));
  }
  /// `hook(optimizer)`, after loading.
  template <class F>
  HookHandle register_load_state_dict_post_hook(F&& hook, HookOptions o = {}) {
    return hooks_.load_post.add(HookKind::load_state_dict_post,
                                detail::make_plain_hook(std::forward<F>(hook)), std::move(o));
  }

 protected:
  explicit Optimizer(std::unique_ptr<OptimizerOptions> defaults) : defaults_(std::move(defaults)) {}
  virtual std::unique_ptr<OptimizerParamState> make_state() const = 0;
  virtual std::unique_ptr<OptimizerParamState> copy_of(const OptimizerParamState& state) const = 0;
  virtual void assign(OptimizerParamState& to, const OptimizerParamState& from) const = 0;
  /// What changes `param` in place by `grad`; called with recording off.
  virtual Update update(const Tensor& param, const Tensor& grad, const OptimizerOptions& options,
                        OptimizerParamState& state) = 0;
  OptimizerParamState& state_of(const Tensor& param);
  /// Takes over what was changed in param_groups(); true if anything was.
  bool take_over_groups();
  /// The step itself, between the hooks: evaluates the closure if there is one and updates every
  /// parameter that has a gradient.
  virtual Tensor run(const LossClosure& closure);
  /// Whether all that update() changes besides the state's numbers are tensors of the Update it
  /// gives.
  virtual bool gives_updates() const { return false; }
  /// Whether a tensor of a saved state belongs to `param`. Most states are shaped like their
  /// parameter.
  virtual bool fits(const std::string& name, const Tensor& saved, const Tensor& param) const;

 private:
  /// A parameter, its group and its state.
  struct Member {
    Tensor param;  ///< kept, so that no other tensor can have its place in memory
    size_t group;
    size_t number;
    std::shared_ptr<OptimizerParamState> state;
  };
  Member* find(const Tensor& param);
  /// Whether the groups hold what they held when they were last taken over.
  bool is_known() const;
  Member& member_of(const Tensor& param);
  /// What is to be done to a parameter that has a gradient. While recording, `restore` gets what
  /// makes its state what it was.
  Update update_of(const Tensor& param, const Tensor& grad, Member& member,
                   std::function<void()>& restore);
  void add_update(UpdatePass& pass, const Tensor& param, const Tensor& grad, Member& member);

  std::unique_ptr<OptimizerOptions> defaults_;
  std::vector<OptimizerParamGroup> groups_;
  // Made complete by add_param_group and at the beginning of a step, so that hooks on several
  // threads may step different parameters.
  std::unordered_map<const TensorImpl*, Member> members_;
  using Place = std::pair<const TensorImpl*, size_t>;  // a parameter and its group
  std::vector<Place> order_;
  OptimizerHooks hooks_;
};

/// Before and after every optimiser's own step hooks.
template <class F>
HookHandle register_optimizer_step_pre_hook(F&& hook, HookOptions o = {}) {
  return global_optimizer_hooks().step_pre.add(
      HookKind::step_pre, detail::make_step_pre_hook(std::forward<F>(hook)), std::move(o));
}
/// A hook after the steps of all optimisers.
template <class F>
HookHandle register_optimizer_step_post_hook(F&& hook, HookOptions o = {}) {
  return global_optimizer_hooks().step_post.add(
      HookKind::step_post, detail::make_plain_hook(std::forward<F>(hook)), std::move(o));
}

}  // namespace grapnel::optim
