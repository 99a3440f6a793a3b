#include "grapnel/autograd/visit.h"

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/anomaly.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/tape_observer.h"
#include "grapnel/base/short_name.h"
#include "grapnel/base/source_site.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/compiled_args.h"
#include "grapnel/ops/record.h"

namespace grapnel {

std::string record::running_hook() { return visit::RunningHook::describe(); }
std::string record::who_looks_at(const Tensor& t) { return visit::RunningHook::who_looks_at(t); }

namespace visit {

std::string RunningHook::describe() {
  for (const Place* c = innermost(); c; c = c->outer())
    if (c->kind() == Kind::hook) {
      const auto& hook = static_cast<const RunningHook&>(*c);
      return str(grapnel::describe(hook.label_, hook.hook_));
    }
  return {};
}

namespace {

/// Where a hook fired. Nothing is put together before it is printed.
class HookPlace final : public base::Remembered {
 public:
  HookPlace(HookLabel label, HookKind kind, const Node* node)
      : label_(std::move(label)),
        kind_(kind),
        is_leaf_(node && node->is_accumulate()),
        site_(!node || is_leaf_ ? nullptr : node->site()) {
    if (is_leaf_) {
      const Tensor& leaf = static_cast<const AccumulateGrad*>(node)->leaf();
      name_ = leaf.name();
      shape_ = leaf.shape();
    } else if (node) {
      name_ = base::short_type_name(node->name());
    }
  }
  /// "tensor hook 'clip' registered at train.cpp:12, at mul"
  std::string hook() const {
    const std::string begin = str(describe(label_, kind_));
    if (!is_leaf_) return name_.empty() ? begin : str(begin, ", at ", name_);
    return str(begin, ", at the leaf ", name_.empty() ? "" : "'" + name_ + "' ", "of shape ",
               shape_);
  }
  /// The same with the line of the call.
  std::string place() const {
    return site_ ? str(hook(), ", called at ", base::describe({site_})) : hook();
  }
  std::string text() const override { return "in the " + place(); }

 private:
  const HookLabel label_;
  const HookKind kind_;
  const bool is_leaf_;
  const void* const site_;
  std::string name_;
  Shape shape_;
};

}  // namespace

std::shared_ptr<const base::Remembered> RunningHook::remember() const {
  return std::make_shared<HookPlace>(label_, hook_, node_);
}

std::string hook_at(const HookLabel& label, HookKind kind, const Node& node) {
  return "in the " + HookPlace(label, kind, &node).hook();
}

void note_hook(const HookLabel& label, HookKind kind, const Node& node) noexcept {
  try {
    base::note(HookPlace(label, kind, &node).text());
  } catch (...) {
  }
}
std::string RunningHook::who_looks_at(const Tensor& t) {
  if (!t.defined()) return {};
  for (const Place* c = innermost(); c; c = c->outer()) {
    if (c->kind() != Kind::hook) continue;
    const auto& hook = static_cast<const RunningHook&>(*c);
    for (const TensorImpl* shown : hook.shown_)
      if (shown->storage == t.impl().storage)
        return str(grapnel::describe(hook.label_, hook.hook_));
  }
  return {};
}

namespace {

template <class... What>
[[noreturn]] void refuse(const HookLabel& label, HookKind kind, const Node& node,
                         const What&... what) {
  fail("the ", HookPlace(label, kind, &node).place(), ", ", what...);
}

/// Fails unless a hook's replacement looks like the gradient it replaces.
void check_replacement(const Tensor& before, const Tensor& after, const HookLabel& label,
                       HookKind kind, const Node& node) {
  if (!before.defined()) [[unlikely]]
    refuse(label, kind, node,
           "returned a gradient where there was none.\nReturn nothing for an undefined gradient.");
  if (after.dtype() != before.dtype()) [[unlikely]]
    refuse(label, kind, node, "changed the type of the gradient from ", before.dtype(), " to ",
           after.dtype(), ".\nConvert the result back: result.to(grad.dtype()).");
  if (!(after.shape() == before.shape())) [[unlikely]]
    refuse(label, kind, node, "changed the size of the gradient from ", before.shape(), " to ",
           after.shape(), ".");
  if (after.device() != before.device()) [[unlikely]]
    refuse(label, kind, node, "moved the gradient from ", before.device(), " to ", after.device(),
           ".");
}

/// Takes over a list hook's result after checking it entry by entry.
void take_list(Grads& current, variable_list& result, const HookLabel& label, HookKind kind,
               const Node& node) {
  if (result.size() != current.size()) [[unlikely]]
    refuse(label, kind, node, "returned ", result.size(), " gradients, expected ", current.size(),
           ".");
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i].defined() && !result[i].is_same(current[i])) {
      check_replacement(current[i], result[i], label, kind, node);
      TapeObserver::notify_hook(label, kind, node, result[i]);
      if (AnomalyMode::should_check_nan()) [[unlikely]]
        anomaly::check_hook_result(result[i], node, label, kind);
    }
    current[i] = std::move(result[i]);
  }
}

variable_list to_list(const Grads& grads) { return variable_list(grads.begin(), grads.end()); }

/// A list hook's result: an empty list stands for "unchanged".
template <class Call>
ListHookResult call_list_hook(const HookEntry& entry, HookKind kind, const variable_list& arguments,
                              bool recording, Call&& call) {
  if (!recording) return call();
  bool returned = false;
  variable_list result = call_hook(entry, kind, arguments, [&] {
    ListHookResult list = call();
    returned = list.has_value();
    return list ? std::move(*list) : variable_list();
  });
  return returned || !result.empty() ? ListHookResult(std::move(result)) : std::nullopt;
}

}  // namespace

void fail_written(const HookLabel& label, HookKind kind) {
  fail("the ", describe(label, kind),
       " changed its argument in place. Gradient buffers may be shared; return a new tensor "
       "instead.");
}

void take(Tensor& grad, Tensor& result, const HookContext& told) {
  check_replacement(grad, result, *told.label, HookKind::tensor, *told.node);
  grad = std::move(result);
  TapeObserver::notify_hook(*told.label, HookKind::tensor, *told.node, grad);
  if (AnomalyMode::should_check_nan()) [[unlikely]]
    anomaly::check_hook_result(grad, *told.node, *told.label, HookKind::tensor);
}

variable_list call_hook(const HookEntry& entry, HookKind kind, const variable_list& arguments,
                        const std::function<variable_list()>& body) {
  CompiledNodeArgs args;
  entry.hook->compiled_args(args);
  if (!args.declared()) {
    if (!entry.hook->opaque()) record::before_user_code();
    const DeclaredScope not_declared(nullptr);
    return body();
  }
  const record::DeclaredHook hook{args, entry.hook->type(), static_cast<int>(kind),
                                  [&] { return str(describe(entry.label, kind)); }};
  return record::call_declared(hook, arguments, body);
}

void run_tensor_hooks_from(size_t first, const HookTable& table, Grads& grads, HookContext& told,
                           bool recording) {
  const HookTable::Reader reader(table.lists());
  // Each slot's list is taken as it is when that list starts.
  for (size_t i = first; i < reader.value().tensor.size(); ++i) {
    const auto& [slot, hooks] = reader.value().tensor[i];
    Tensor& grad = grads[slot];
    told.slot = static_cast<int>(slot);
    for (const HookEntry& entry : hooks) {
      told.label = &entry.label;
      Tensor result;
      try {
        const RunningHook running(entry.label, HookKind::tensor, told.node, grad);
        auto call = [&] { return static_cast<TensorHook*>(entry.hook.get())->call(grad, told); };
        result = recording ? std::move(call_hook(entry, HookKind::tensor, {grad},
                                                 [&] { return variable_list{call()}; })[0])
                           : call();
        running.check_unchanged();
      } catch (...) {
        note_hook(entry.label, HookKind::tensor, *told.node);
        throw;
      }
      if (result.defined() && !result.is_same(grad)) take(grad, result, told);
    }
  }
  for (const RetainEntry& entry : reader.value().retain)
    write_retained(*entry.tensor, grads[entry.slot]);
}

void write_retained(AutogradMeta& tensor, const Tensor& grad) {
  if (!grad.defined() || !tensor.alive.load(std::memory_order_acquire)) return;
  record::before_grad_is_replaced(tensor);         // not under the lock: user code may run
  const std::lock_guard guard(tensor.grad_mutex);  // other passes may run through the same graph
  if (tensor.grad.defined() &&
      !(tensor.grad.shape() == grad.shape() && tensor.grad.dtype() == grad.dtype())) [[unlikely]]
    fail("retain_grad: grad() of the tensor is ", tensor.grad.dtype(), " of shape ",
         tensor.grad.shape(), ", so a gradient that is ", grad.dtype(), " of shape ", grad.shape(),
         " cannot be added to it.\nClear it first: reset_grad().");
  engine::journal_retained(tensor);
  journal_grad(tensor);
  tensor.grad = tensor.grad.defined() ? tensor.grad + grad : grad.clone();
}

void run_pre_hooks(Node& node, const HookTable& table, Grads& grads, bool recording) {
  const HookTable::Reader reader(table.lists());
  for (const HookEntry& entry : reader.value().pre) {
    const variable_list argument = to_list(grads);
    ListHookResult result;
    try {
      const RunningHook running(entry.label, HookKind::node_pre, &node, argument);
      result = call_list_hook(entry, HookKind::node_pre, argument, recording, [&] {
        return static_cast<NodePreHook*>(entry.hook.get())->call(argument);
      });
      running.check_unchanged();
    } catch (...) {
      note_hook(entry.label, HookKind::node_pre, node);
      throw;
    }
    if (result) take_list(grads, *result, entry.label, HookKind::node_pre, node);
  }
}

void run_post_hooks(Node& node, const HookTable& table, Grads& grad_inputs,
                    const Grads& grad_outputs, bool recording) {
  const HookTable::Reader reader(table.lists());
  const variable_list consumed = to_list(grad_outputs);
  // What an accumulate node shows is grad() itself, which is the leaf's and may be changed.
  const bool is_grad =
      node.is_accumulate() && consumed[0].is_same(static_cast<AccumulateGrad&>(node).leaf().grad());
  for (const HookEntry& entry : reader.value().post) {
    ListHookResult result;
    try {
      const variable_list produced = to_list(grad_inputs);
      const RunningHook running(entry.label, HookKind::node_post, &node, produced,
                                is_grad ? std::span<const Tensor>() : std::span(consumed));
      variable_list both = produced;
      both.insert(both.end(), consumed.begin(), consumed.end());
      result = call_list_hook(entry, HookKind::node_post, both, recording, [&] {
        return static_cast<NodePostHook*>(entry.hook.get())->call(produced, consumed);
      });
      running.check_unchanged();
    } catch (...) {
      note_hook(entry.label, HookKind::node_post, node);
      throw;
    }
    if (result) take_list(grad_inputs, *result, entry.label, HookKind::node_post, node);
  }
}

void validate_outputs(const Node& node, Grads& outputs) {
  if (outputs.size() > node.num_outputs()) [[unlikely]] {
    GRAPNEL_ASSERT(node.is_user_code(), node.name(), " produced too many gradients");
    for (size_t i = node.num_outputs(); i < outputs.size(); ++i)
      if (outputs[i].defined()) [[unlikely]]
        fail("the backward of ", node.name(), " returned ", outputs.size(), " gradients, expected ",
             node.num_outputs(), ".");
  }
  outputs.resize(node.num_outputs());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor& g = outputs[i];
    const Edge& edge = node.next_edge(i);
    if (!g.defined()) continue;
    if (!edge) {
      g = Tensor();
      continue;
    }
    const SlotMeta& want = edge.node->slot(edge.slot);
    if (!(g.shape() == want.sizes)) {
      bool reducible = g.dim() >= want.sizes.size();
      const int extra = static_cast<int>(g.dim()) - want.sizes.size();
      for (int d = 0; reducible && d < want.sizes.size(); ++d)
        reducible = want.sizes[d] == 1 || want.sizes[d] == g.shape()[d + extra];
      if (!reducible) [[unlikely]]
        fail("the backward of ", node.name(), " returned a gradient of shape ", g.shape(),
             " for input ", i, ", expected ", want.sizes, " or a shape that sums to it.");
      g = g.sum_to_size(want.sizes);
    }
    if (g.dtype() != want.dtype) {
      if (!(is_floating(g.dtype()))) [[unlikely]]
        fail("the backward of ", node.name(), " returned a gradient of type ", g.dtype(),
             " for input ", i, ".");
      g = g.to(want.dtype);
    }
  }
}

}  // namespace visit
}  // namespace grapnel
