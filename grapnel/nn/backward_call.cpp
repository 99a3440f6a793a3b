#include "grapnel/nn/backward_call.h"

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/hooked_views.h"
#include "grapnel/autograd/visit.h"
#include "grapnel/base/place.h"
#include "grapnel/base/short_name.h"
#include "grapnel/ops/tape.h"

namespace grapnel::nn {

namespace {

/// Slots of a node and the places they have in the lists of hooks: see Note [Places of gradients].
struct Layout {
  size_t places = 0;
  std::vector<size_t> place_of_slot;

  variable_list spread(const variable_list& slots) const {
    variable_list out(places);
    for (size_t i = 0; i < slots.size(); ++i) out[place_of_slot[i]] = slots[i];
    return out;
  }
  variable_list gather(variable_list& list) const {
    variable_list out;
    for (size_t place : place_of_slot) out.push_back(std::move(list[place]));
    return out;
  }
  bool has(size_t place) const {
    return std::find(place_of_slot.begin(), place_of_slot.end(), place) != place_of_slot.end();
  }
};

template <class Hook>
using Entries = typename HookList<Hook>::Entries;

/// What one pass knows about one call. Dies with the pass, and takes its temporary hooks along.
struct PassState {
  bool entered = false;  ///< the pass came through the results
  variable_list grad_output, grad_input;
  /// Parameters and arguments still to come, for hooks that fire after them.
  size_t waiting_for = 0;
  std::vector<ScopedHook> parameter_hooks;
};

}  // namespace

struct BackwardCall::Record {
  Module* module;
  std::shared_ptr<Module> owner;  ///< modules owned by a shared_ptr live as long as their graphs
  std::weak_ptr<const void> alive;
  std::string name;
  Entries<BackwardPreHook> pre_hooks;
  Entries<BackwardHook> hooks, late_hooks;
  Layout arguments, results;
  const Node* before = nullptr;
  /// Forward need not have used its arguments; then the node is gone.
  std::weak_ptr<const HookTable> before_alive;

  explicit Record(Module& m)
      : module(&m), owner(m.weak_from_this().lock()), alive(m.lifetime()), name(m.name()) {
    const ModuleHooks& global = global_module_hooks();
    pre_hooks = hooks_now(global.backward_pre, m.hooks().backward_pre);
    for (auto& hook : hooks_now(global.backward, m.hooks().backward))
      (hook->hook.after_parameters ? late_hooks : hooks).push_back(std::move(hook));
  }

  /// Stands for those of all hooks where one hook of a node does their work.
  base::SourceLine first_site() const {
    return (hooks.empty() ? late_hooks : hooks).front()->site;
  }
  /// Of the node's hook that calls the module's.
  HookOptions options_of(const auto& entry, const char* kind) const {
    return {.name = entry.name.empty() ? name + kind : entry.name, .site = entry.site};
  }
  Module& get(const std::string& hook) const {
    check(!alive.expired(), "the ", hook, " fires, but its module ", name,
          " is gone.\nMake modules with std::make_shared, so that graphs can keep them.");
    return *module;
  }
  /// Runs a hook; what goes wrong in it is told with its name.
  template <class Run>
  auto as_hook(const std::string& label, Run&& run) const {
    try {
      return run();
    } catch (...) {
      base::note(str("in the ", label, ", of ", base::short_type_name(name)));
      throw;
    }
  }
  PassState& state() const {
    std::shared_ptr<void>& state = engine::pass_state(this);
    if (!state) state = std::make_shared<PassState>();
    return *static_cast<PassState*>(state.get());
  }

  variable_list checked(variable_list result, const Layout& layout, const std::string& hook,
                        const char* what) const {
    check(result.size() == layout.places, "the ", hook, " of ", name, " returned ", result.size(),
          " gradients, expected ", layout.places, ", one per ", what, ".");
    for (size_t i = 0; i < result.size(); ++i)
      check(!result[i].defined() || layout.has(i), "the ", hook, " of ", name,
            " returned a gradient for ", what, " ", i,
            ", which does not require grad.\nReturn an undefined tensor there.");
    return layout.gather(result);
  }

  ListHookResult run_pre(const HookList<BackwardPreHook>::Entry& e,
                         const variable_list& slots) const {
    if (e.stopped.load(std::memory_order_acquire)) return std::nullopt;
    const std::string label = e.describe(grapnel::name(HookKind::full_backward_pre));
    ListHookResult result =
        as_hook(label, [&] { return e.hook.call(get(label), results.spread(slots)); });
    if (!result) return std::nullopt;
    return checked(std::move(*result), results, label, "result");
  }

  ListHookResult run(const HookList<BackwardHook>::Entry& e, const variable_list& slots,
                     bool last) const {
    PassState& pass = state();
    // A pass that reaches the arguments from inside the module only, such as a second-order one, is
    // none of the hook's business.
    if (!pass.entered || e.stopped.load(std::memory_order_acquire)) return std::nullopt;
    const std::string label = e.describe(grapnel::name(HookKind::full_backward));
    // The node's hook is shown `slots`; what came through the results is shown here.
    const uint32_t writes = visit::writes_to(pass.grad_output);
    ListHookResult result = as_hook(
        label, [&] { return e.hook.call(get(label), arguments.spread(slots), pass.grad_output); });
    if (visit::writes_to(pass.grad_output) != writes) [[unlikely]]
      visit::fail_written({e.name, e.site}, HookKind::full_backward);
    if (last && late_hooks.empty()) pass.grad_output.clear();
    if (!result) return std::nullopt;
    return checked(std::move(*result), arguments, label, "argument");
  }

  void enter(const std::shared_ptr<const Record>& self, const variable_list& slots) const {
    if (hooks.empty() && late_hooks.empty()) return;
    PassState& pass = state();
    pass.entered = true;
    pass.grad_output = results.spread(slots);
    pass.grad_input.assign(arguments.places, Tensor());
    if (!late_hooks.empty()) await_parameters(self, pass);
  }

  /// Arranges for the late hooks to fire after the last node that they wait for.
  void await_parameters(const std::shared_ptr<const Record>& self, PassState& pass) const {
    const uint64_t number = engine::current_pass();
    pass.waiting_for = !before_alive.expired() && engine::pass_will_run(before);
    for (const Tensor& p : get("backward hook").parameters()) {
      if (!p.requires_grad()) continue;
      const NodePtr node = grad_accumulator(p);
      if (!engine::pass_will_run(node.get())) continue;
      ++pass.waiting_for;
      // Leaves are shared between passes; only this one counts.
      pass.parameter_hooks.emplace_back(node->register_hook(
          [self, number](const variable_list&, const variable_list&) {
            if (engine::current_pass() == number) self->arrive(self->state());
          },
          HookOptions{.name = "after_parameters of " + name, .site = late_hooks.front()->site}));
    }
    if (pass.waiting_for == 0) fire_late(pass);
  }
  void arrive(PassState& pass) const {
    if (pass.waiting_for > 0 && --pass.waiting_for == 0) fire_late(pass);
  }
  void fire_late(PassState& pass) const {
    const variable_list grad_input = std::move(pass.grad_input),
                        grad_output = std::move(pass.grad_output);
    pass.parameter_hooks.clear();
    for (const auto& e : late_hooks) {
      if (e->stopped.load(std::memory_order_acquire)) continue;
      const std::string label = e->describe(grapnel::name(HookKind::full_backward));
      const uint32_t writes = visit::writes_to(grad_input) + visit::writes_to(grad_output);
      const bool returned = as_hook(label, [&] {
        return e->hook.call(get(label), grad_input, grad_output).has_value();
      });
      if (visit::writes_to(grad_input) + visit::writes_to(grad_output) != writes) [[unlikely]]
        visit::fail_written({e->name, e->site}, HookKind::full_backward);
      check(!returned, "the ", label, " of ", name,
            " returned gradients, but it fires after the parameters were updated, when they can no "
            "longer be changed.\n"
            "Return nothing, or register it without after_parameters.");
    }
  }
};

// --- Before forward ---

BackwardCall::BackwardCall(Module& module, Args& args, Kwargs& kwargs) {
  const ModuleHooks &own = module.hooks(), &global = global_module_hooks();
  if (!GradMode::is_enabled() || (own.backward.empty() && own.backward_pre.empty() &&
                                  global.backward.empty() && global.backward_pre.empty()))
    return;
  record_ = std::make_shared<Record>(module);
  before_ = make_intrusive<IdentityNode>();
  route_arguments(args, kwargs);
}

BackwardCall::~BackwardCall() {
  while (!overrides_.empty()) overrides_.pop_back();
}

void BackwardCall::route_arguments(Args& args, Kwargs& kwargs) {
  const Places places = Places::of(args, kwargs);
  record_->arguments.places = places.count;
  const auto seen = [&](const Tensor& t) {
    return std::any_of(routed_.begin(), routed_.end(),
                       [&](const Routed& r) { return r.tensor.is_same(t); });
  };
  for (const auto& [place, tensor] : places.tensors) {
    if (!tensor->defined() || !tensor->requires_grad()) continue;
    const uint32_t slot = before_->add(*tensor, gradient_edge(*tensor));
    record_->arguments.place_of_slot.push_back(place);
    Routed routed{*tensor, current_grad_fn(*tensor), seen(*tensor), place};
    if (routed.alias) {
      // The same tensor as two arguments: the second is an alias, so that each has its own
      // gradient.
      routed.tensor = tensor->detach();
      set_history(routed.tensor, before_, slot);
      routed.node = before_;
      *tensor = routed.tensor;
    }
    routed_.push_back(std::move(routed));
  }
  // All edges were taken before the first is routed: arguments may be views of each other.
  for (size_t slot = 0; slot < routed_.size(); ++slot)
    if (!routed_[slot].alias)
      overrides_.push_back(std::make_unique<EdgeOverride>(
          routed_[slot].tensor, Edge{before_, static_cast<uint32_t>(slot)}));
}

void BackwardCall::check_arguments() const {
  for (const Routed& r : routed_) {
    const bool changed = current_grad_fn(r.tensor).get() != r.node.get();
    check(!changed || !r.tensor.is_view(), "forward of ", record_->name, " changed argument ",
          r.place,
          " in place, and that argument is a view: its gradient goes around the backward hooks of "
          "the module.\nPass a clone(), or remove the hooks.");
    check(!changed || !r.alias, "forward of ", record_->name, " changed argument ", r.place,
          " in place, and the same tensor was passed twice to a module with backward hooks.\nPass "
          "a clone().");
  }
}

// --- After forward ---

namespace {

/// A tensor over the same memory for a result that is not the call's own. Changing it in place is
/// refused, as it would also change the original behind the back of its history.
Tensor alias_of(const Tensor& t) {
  Tensor alias = t.detach();
  tape::mark_view(alias, t, false);
  find_meta(alias)->view->origin = ViewOrigin::custom_function;
  return alias;
}

}  // namespace

void BackwardCall::finish(Value& result) {
  if (!record_) return;
  check_arguments();
  const uint64_t start = before_->sequence_nr();
  after_ = make_intrusive<IdentityNode>();
  const Places places = Places::of(result);
  record_->results.places = places.count;

  std::vector<Tensor*> attached;
  for (const auto& [place, tensor] : places.tensors) {
    if (!tensor->defined() || !tensor->requires_grad()) continue;
    after_->add(*tensor, gradient_edge(*tensor));
    record_->results.place_of_slot.push_back(place);
    attached.push_back(tensor);
  }
  if (attached.empty()) return;
  hook_results();
  for (uint32_t slot = 0; slot < attached.size(); ++slot) {
    Tensor& t = *attached[slot];
    const NodePtr& node = current_grad_fn(t);
    const bool repeated = node.get() == after_.get();
    if (!node || node->sequence_nr() < start || repeated) t = alias_of(t);
    AutogradMeta& meta = autograd_meta(t);
    if (meta.view && meta.view->base.use_count() == 1) {
      // Nobody else can see the base, so the result need not be a view; ordinary tensors may be
      // changed in place.
      t.impl().differentiable_view = false;
      meta.view.reset();
    }
    set_history(t, after_, slot);
    if (meta.view) hook_view(meta.view->base, after_->make_hooks());
  }
  if (before_->num_inputs() > 0) hook_arguments();
}

void BackwardCall::hook_results() {
  const std::shared_ptr<Record>& record = record_;
  // So that will_fire() finds the module's hook by its number.
  const auto stand_for = [](Node& node, const HookHandle& here, const auto& entry) {
    node.make_hooks()->add_stands_for(here.id(), entry->id);
  };
  for (const auto& e : record->pre_hooks)
    stand_for(*after_,
              after_->register_hook(
                  [record, e](const variable_list& slots, const variable_list&) {
                    return record->run_pre(*e, slots);
                  },
                  record->options_of(*e, " full_backward_pre")),
              e);
  if (before_->num_inputs() > 0) {
    record->before = before_.get();
    record->before_alive = before_->make_hooks();
  }
  if (record->hooks.empty() && record->late_hooks.empty()) return;
  const HookHandle results = after_->register_hook(
      [record](const variable_list& slots, const variable_list&) { record->enter(record, slots); },
      HookOptions{.name = record->name + " results", .site = record->first_site()});
  for (const auto& e : record->hooks) stand_for(*after_, results, e);
  for (const auto& e : record->late_hooks) stand_for(*after_, results, e);
  if (before_->num_inputs() > 0) return;
  for (const auto& e : record->hooks)
    after_->register_hook(
        [record, e, last = e == record->hooks.back()](const variable_list&, const variable_list&) {
          (void)record->run(*e, {}, last);
        },
        record->options_of(*e, " full_backward"));
}

void BackwardCall::hook_arguments() {
  const std::shared_ptr<Record>& record = record_;
  for (const auto& e : record->hooks)
    before_->register_hook(
        [record, e, last = e == record->hooks.back()](const variable_list& slots,
                                                      const variable_list&) {
          return record->run(*e, slots, last);
        },
        record->options_of(*e, " full_backward"));
  if (record->late_hooks.empty()) return;
  before_->register_hook(
      [record](const variable_list& slots, const variable_list&) {
        PassState& pass = record->state();
        if (!pass.entered) return;
        pass.grad_input = record->arguments.spread(slots);
        record->arrive(pass);
      },
      HookOptions{.name = record->name + " arguments", .site = record->late_hooks.front()->site});
}

}  // namespace grapnel::nn
