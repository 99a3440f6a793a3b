#include "grapnel/optim/optimizer.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/invoke.h"
#include "grapnel/ops/record.h"

namespace grapnel::optim {

OptimizerHooks& global_optimizer_hooks() {
  static OptimizerHooks& hooks = *new OptimizerHooks;
  return hooks;
}

namespace {
template <class Hook, class... A>
void run_hooks(const HookList<Hook>& list, HookKind kind, Optimizer& optimizer, A&... args) {
  call_hooks(list, kind, &typeid(optimizer), [&](const Hook& hook) { hook(optimizer, args...); });
}
}  // namespace

void Optimizer::add_param_group(OptimizerParamGroup group) {
  groups_.push_back(std::move(group));
  try {
    take_over_groups();
  } catch (...) {
    groups_.pop_back();
    throw;
  }
}

size_t Optimizer::size() const {
  size_t n = 0;
  for (const OptimizerParamGroup& group : groups_) n += group.params().size();
  return n;
}

bool Optimizer::is_known() const {
  size_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].has_options()) return false;
    for (const Tensor& p : groups_[g].params())
      if (number == order_.size() || order_[number++] != Place{p.impl_ptr(), g}) return false;
  }
  return number == order_.size();
}

bool Optimizer::take_over_groups() {
  if (is_known()) [[likely]]
    return false;
  std::unordered_map<const TensorImpl*, Member> members;
  std::vector<Place> order;
  for (size_t g = 0; g < groups_.size(); ++g) {
    OptimizerParamGroup& group = groups_[g];
    if (group.has_options()) {
      const OptimizerOptions &given = group.options(), &expected = *defaults_;
      given.validate();
      check(typeid(given) == typeid(expected), "add_param_group: the options of group ", g,
            " are those of another optimiser.");
    }
    for (size_t i = 0; i < group.params().size(); ++i) {
      const Tensor& p = group.params()[i];
      check(p.defined(), "add_param_group: parameter ", i, " of group ", g, " is undefined.");
      check(p.is_leaf(), "add_param_group: parameter ", i, " of group ", g,
            " is the result of an operation; only leaves can be optimised.");
      const Member* known = find(p);
      const bool added =
          members
              .emplace(p.impl_ptr(),
                       Member{p, g, members.size(), known != nullptr ? known->state : make_state()})
              .second;
      check(added, "add_param_group: parameter ", i, " of group ", g, ", of shape ", p.shape(),
            ", is already in a group of this optimiser.");
      order.emplace_back(p.impl_ptr(), g);
    }
  }
  for (OptimizerParamGroup& group : groups_)
    if (!group.has_options()) group.set_options(defaults_->clone());
  members_ = std::move(members);
  order_ = std::move(order);
  return true;
}

Optimizer::Member* Optimizer::find(const Tensor& param) {
  const auto it = members_.find(param.impl_ptr());
  return it == members_.end() ? nullptr : &it->second;
}

OptimizerParamState& Optimizer::state_of(const Tensor& param) {
  Member* member = find(param);
  check(member != nullptr, "state: the tensor is no parameter of this optimiser.");
  return *member->state;
}

Update Optimizer::update_of(const Tensor& param, const Tensor& grad, Member& member,
                            std::function<void()>& restore) {
  if (!(grad.impl().sizes == param.impl().sizes)) [[unlikely]]
    fail("step: grad() of parameter ", member.number, " has shape ", grad.shape(),
         ", the parameter itself ", param.shape(),
         ".\nIts data was replaced since backward(); clear the gradient (zero_grad) and run "
         "backward() again.");
  // A recorded step that does not run has neither moved the parameter nor counted. It has counted
  // once it begins to move it.
  restore = record::undo_from([&] {
    return [this, weak = std::weak_ptr(member.state),
            before = std::shared_ptr<const OptimizerParamState>(copy_of(*member.state))] {
      if (const auto now = weak.lock()) assign(*now, *before);
    };
  });
  Update moves;
  try {
    moves = update(param, grad.detach(), groups_[member.group].options(), *member.state);
  } catch (...) {
    record::on_undo(restore);
    throw;
  }
  record::on_undo(restore);
  return moves;
}

void Optimizer::add_update(UpdatePass& pass, const Tensor& param, const Tensor& grad, Member& member) {
  if (!grad.defined()) return;
  std::function<void()> restore;
  pass.add(update_of(param, grad, member, restore));
}

Tensor Optimizer::step(LossClosure closure) {
  OptimizerHooks& global = global_optimizer_hooks();
  run_hooks(global.step_pre, HookKind::step_pre, *this, closure);
  run_hooks(hooks_.step_pre, HookKind::step_pre, *this, closure);
  take_over_groups();
  Tensor loss = run(closure);
  run_hooks(hooks_.step_post, HookKind::step_post, *this);
  run_hooks(global.step_post, HookKind::step_post, *this);
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
      for (const Tensor& p : group.params()) add_update(pass, p, p.grad(), member_of(p));
  } catch (...) {
    pass.run();  // what came before has counted its step already
    throw;
  }
  pass.run();
  return loss;
}

namespace {
/// Does what the update does, and then puts everything back where `skip` is true.
Update unless(const Tensor& skip, Update update) {
  update.fn = [skip, fn = std::move(update.fn)](std::span<const Tensor> parts) {
    std::vector<Tensor> before;
    for (size_t i = 0; i < parts.size(); ++i)
      before.push_back(i != kUpdateGrad && parts[i].defined() ? parts[i].clone() : Tensor());
    fn(parts);
    for (size_t i = 0; i < parts.size(); ++i)
      if (before[i].defined()) parts[i].copy_(where(skip, before[i], parts[i]));
  };
  return update;
}

template <class Hook>
bool has_hooks(const HookList<Hook>& list) {
  const auto entries = list.snapshot();
  return entries && !entries->empty();
}
}  // namespace

bool Optimizer::record_step_unless(const Tensor& skip) {
  const OptimizerHooks& global = global_optimizer_hooks();
  for (const OptimizerHooks* hooks : {&global, &std::as_const(hooks_)})
    if (has_hooks(hooks->step_pre) || has_hooks(hooks->step_post)) return false;
  // What is decided later can be written down only where something is.
  if (!record::active() || !gives_updates()) return false;
  NoGradGuard no_grad;
  take_over_groups();
  std::vector<std::function<void()>> restores;
  UpdatePass pass;
  for (const OptimizerParamGroup& group : groups_)
    for (const Tensor& p : group.params())
      if (p.grad().defined())
        pass.add(unless(skip, update_of(p, p.grad(), member_of(p), restores.emplace_back())));
  invoke_detail::call(
      invoke_detail::Kind::effect,
      [restores = std::move(restores)](const variable_list& x) -> variable_list {
        if (x[0].item<bool>())
          for (const auto& restore : restores) restore();
        return {};
      },
      {skip}, 0);
  return true;
}

bool Optimizer::fits(const std::string&, const Tensor& saved, const Tensor& param) const {
  return saved.shape() == param.shape();
}

Optimizer::Member& Optimizer::member_of(const Tensor& param) {
  Member* member = param.defined() ? find(param) : nullptr;
  check(member != nullptr,
        "step: the tensor is no parameter of this optimiser.\nA parameter that was put into a "
        "group's list by hand is known from the next step() on; add_param_group makes it known at "
        "once.");
  return *member;
}

void Optimizer::step_param(const Tensor& param) {
  Member& member = member_of(param);
  NoGradGuard no_grad;
  UpdatePass pass;
  add_update(pass, param, param.grad(), member);
  pass.run();
}

void Optimizer::step_param(const Tensor& param, const Tensor& grad) {
  Member& member = member_of(param);
  check(grad.defined() && grad.shape() == param.shape() && grad.dtype() == param.dtype(),
        "step_param: the gradient ",
        grad.defined() ? str("is ", grad.dtype(), " of shape ", grad.shape())
                       : std::string("is undefined"),
        ", the parameter ", param.dtype(), " of shape ", param.shape(), ".");
  NoGradGuard no_grad;
  UpdatePass pass;
  add_update(pass, param, grad, member);
  pass.run();
}

void Optimizer::zero_grad(bool set_to_none) {
  for (const OptimizerParamGroup& group : groups_)
    for (const Tensor& p : group.params()) p.zero_grad(set_to_none);
}

OptimizerStateDict Optimizer::state_dict() {
  run_hooks(hooks_.save_pre, HookKind::state_dict_pre, *this);
  take_over_groups();
  OptimizerStateDict out;
  for (const OptimizerParamGroup& group : groups_) {
    OptimizerStateDict::Group saved{group.options().to_map(), {}};
    for (const Tensor& p : group.params()) {
      const Member& member = member_of(p);
      saved.params.push_back(static_cast<int64_t>(member.number));
      if (auto state = member.state->to_map(); !state.empty())
        out.state.emplace(static_cast<int64_t>(member.number), std::move(state));
    }
    out.param_groups.push_back(std::move(saved));
  }
  run_hooks(hooks_.save_post, HookKind::state_dict_post, *this, out);
  return out;
}

void Optimizer::load_state_dict(const OptimizerStateDict& state_dict) {
  OptimizerStateDict dict = state_dict;
  run_hooks(hooks_.load_pre, HookKind::load_state_dict_pre, *this, dict);
  take_over_groups();

  check(dict.param_groups.size() == groups_.size(), "load_state_dict: the saved optimiser has ",
        dict.param_groups.size(), " groups of parameters, this one has ", groups_.size(), ".");
  NoGradGuard no_grad;
  std::vector<std::pair<Member*, std::unique_ptr<OptimizerParamState>>> states;
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
      states.emplace_back(&member_of(params[i]), std::move(state));
    }
  }
  for (auto& [member, state] : states) member->state = std::move(state);
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].set_options(std::move(options[g]));
  run_hooks(hooks_.load_post, HookKind::load_state_dict_post, *this);
}

}  // namespace grapnel::optim
