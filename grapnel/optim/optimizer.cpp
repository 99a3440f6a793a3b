#include "grapnel/optim/optimizer.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/ops/on_failure.h"
#include "grapnel/ops/record.h"

namespace grapnel::optim {

OptimizerHooks& global_optimizer_hooks() {
  static OptimizerHooks& hooks = *new OptimizerHooks;
  return hooks;
}

namespace {
template <class Hook, class... A>
void run_hooks(const HookList<Hook>& list, A&... args) {
  if (const auto entries = list.snapshot())
    for (const auto& e : *entries) e->hook(args...);
}
}  // namespace

void Optimizer::add_param_group(OptimizerParamGroup group) {
  if (!group.has_options()) group.set_options(defaults_->clone());
  group.options().validate();
  const OptimizerOptions &given = group.options(), &expected = *defaults_;
  check(typeid(given) == typeid(expected),
        "add_param_group: the options are those of another optimiser.");
  std::unordered_map<const TensorImpl*, bool> seen;
  for (size_t i = 0; i < group.params().size(); ++i) {
    const Tensor& p = group.params()[i];
    check(p.defined(), "add_param_group: parameter ", i, " is undefined.");
    check(p.is_leaf(), "add_param_group: parameter ", i,
          " is the result of an operation; only leaves can be optimised.");
    check(!slots_.contains(p.impl_ptr()) && seen.emplace(p.impl_ptr(), true).second,
          "add_param_group: parameter ", i, " of shape ", p.shape(),
          " is already in a group of this optimiser.");
  }
  for (const Tensor& p : group.params())
    slots_.emplace(p.impl_ptr(), Slot{groups_.size(), slots_.size(), make_state()});
  groups_.push_back(std::move(group));
}

Optimizer::Slot* Optimizer::find(const Tensor& param) {
  const auto it = slots_.find(param.impl_ptr());
  return it == slots_.end() ? nullptr : &it->second;
}

OptimizerParamState& Optimizer::state_of(const Tensor& param) {
  Slot* slot = find(param);
  check(slot != nullptr, "state: the tensor is no parameter of this optimiser.");
  return *slot->state;
}

void Optimizer::add_update(UpdatePass& pass, const Tensor& param, const Tensor& grad, Slot& slot) {
  if (!grad.defined()) return;
  // A recorded step that does not run has neither moved the parameter nor counted.
  if (record::active()) {
    record::on_undo(restorer(slot.state));
    record::on_failure(restorer(slot.state));
  }
  pass.add(update(param, grad.detach(), groups_[slot.group].options(), *slot.state));
}

Tensor Optimizer::step(LossClosure closure) {
  OptimizerHooks& global = global_optimizer_hooks();
  run_hooks(global.step_pre, *this, closure);
  run_hooks(hooks_.step_pre, *this, closure);
  Tensor loss = run(closure);
  run_hooks(hooks_.step_post, *this);
  run_hooks(global.step_post, *this);
  return loss;
}

Tensor Optimizer::run(const LossClosure& closure) {
  Tensor loss;
  if (closure) {
    EnableGradGuard grad;
    loss = closure();
  }
  NoGradGuard no_grad;
  UpdatePass pass;
  try {
    for (const OptimizerParamGroup& group : groups_)
      for (const Tensor& p : group.params()) add_update(pass, p, p.grad(), *find(p));
  } catch (...) {
    pass.run();  // what came before has counted its step already
    throw;
  }
  pass.run();
  return loss;
}

bool Optimizer::fits(const std::string&, const Tensor& saved, const Tensor& param) const {
  return saved.shape() == param.shape();
}

Optimizer::Slot& Optimizer::slot_of(const Tensor& param) {
  Slot* slot = param.defined() ? find(param) : nullptr;
  check(slot != nullptr, "step_param: the tensor is no parameter of this optimiser.");
  return *slot;
}

void Optimizer::step_param(const Tensor& param) {
  Slot& slot = slot_of(param);
  NoGradGuard no_grad;
  UpdatePass pass;
  add_update(pass, param, param.grad(), slot);
  pass.run();
}

void Optimizer::step_param(const Tensor& param, const Tensor& grad) {
  Slot& slot = slot_of(param);
  check(grad.defined() && grad.shape() == param.shape() && grad.dtype() == param.dtype(),
        "step_param: the gradient ",
        grad.defined() ? str("is ", grad.dtype(), " of shape ", grad.shape())
                       : std::string("is undefined"),
        ", the parameter ", param.dtype(), " of shape ", param.shape(), ".");
  NoGradGuard no_grad;
  UpdatePass pass;
  add_update(pass, param, grad, slot);
  pass.run();
}

void Optimizer::zero_grad(bool set_to_none) {
  for (const OptimizerParamGroup& group : groups_)
    for (const Tensor& p : group.params()) p.zero_grad(set_to_none);
}

OptimizerStateDict Optimizer::state_dict() {
  run_hooks(hooks_.save_pre, *this);
  OptimizerStateDict out;
  for (const OptimizerParamGroup& group : groups_) {
    OptimizerStateDict::Group saved{group.options().to_map(), {}};
    for (const Tensor& p : group.params()) {
      const Slot& slot = *find(p);
      saved.params.push_back(static_cast<int64_t>(slot.number));
      if (auto state = slot.state->to_map(); !state.empty())
        out.state.emplace(static_cast<int64_t>(slot.number), std::move(state));
    }
    out.param_groups.push_back(std::move(saved));
  }
  run_hooks(hooks_.save_post, *this, out);
  return out;
}

void Optimizer::load_state_dict(const OptimizerStateDict& state_dict) {
  OptimizerStateDict dict = state_dict;
  run_hooks(hooks_.load_pre, *this, dict);

  check(dict.param_groups.size() == groups_.size(), "load_state_dict: the saved optimiser has ",
        dict.param_groups.size(), " groups of parameters, this one has ", groups_.size(), ".");
  NoGradGuard no_grad;
  std::vector<std::pair<Slot*, std::unique_ptr<OptimizerParamState>>> states;
  std::vector<std::unique_ptr<OptimizerOptions>> options;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& saved = dict.param_groups[g];
    const auto& params = groups_[g].params();
    check(saved.params.size() == params.size(), "load_state_dict: group ", g, " was saved with ",
          saved.params.size(), " parameters, this one has ", params.size(), ".");
    options.push_back(groups_[g].options().clone());
    options.back()->from_map(saved.options);
    options.back()->validate();
    for (size_t i = 0; i < params.size(); ++i) {
      auto state = make_state();
      if (const auto it = dict.state.find(saved.params[i]); it != dict.state.end()) {
        auto entries = it->second;
        // Copies, in the parameter's type: what was saved stays the caller's.
        for (auto& [name, entry] : entries)
          if (Tensor* t = std::get_if<Tensor>(&entry)) {
            if (!(t->defined() && fits(name, *t, params[i]))) [[unlikely]]
              fail("load_state_dict: ", name, " of parameter ", saved.params[i],
                   t->defined() ? str(" has shape ", t->shape()) : std::string(" is undefined"),
                   ", the parameter has shape ", params[i].shape(), ".");
            *t = t->dtype() == params[i].dtype() ? t->detach().clone()
                                                 : t->detach().to(params[i].dtype());
          }
        state->from_map(entries);
      }
      states.emplace_back(find(params[i]), std::move(state));
    }
  }
  for (auto& [slot, state] : states) slot->state = std::move(state);
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].set_options(std::move(options[g]));
  run_hooks(hooks_.load_post, *this);
}

}  // namespace grapnel::optim
