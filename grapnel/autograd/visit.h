/// One visit of one node: every hook phase in its order. The eager engine and the compiled backward
/// walk share it.
#pragma once

#include <functional>

#include "grapnel/autograd/hook_table.h"
#include "grapnel/autograd/node.h"
#include "grapnel/base/context.h"

namespace grapnel {

namespace visit {

/// Says which hook runs, for messages about what it does.
class RunningHook final : public base::Context {
 public:
  RunningHook(const HookLabel& label, HookKind kind, const Node& node)
      : Context(Kind::hook), label_(label), hook_(kind), node_(node) {}
  ~RunningHook() = default;
  /// The innermost one of this thread; empty when none runs.
  static std::string describe();
  std::shared_ptr<const base::Remembered> remember() const override;

 private:
  const HookLabel& label_;
  const HookKind hook_;
  const Node& node_;
};

/// "in the tensor hook 'clip' registered at train.cpp:12, at mul"; of a leaf its name and shape.
std::string hook_at(const HookLabel& label, HookKind kind, const Node& node);
/// For catch blocks: tells the exception that it came through this hook at this node.
void note_hook(const HookLabel& label, HookKind kind, const Node& node) noexcept;

/// What a hook returns. In a recording, one that declared itself and was called before is not
/// called again.
variable_list call_hook(const HookEntry& entry, HookKind kind, const variable_list& arguments,
                        const std::function<variable_list()>& body);

/// Takes over what the tensor hook of `told` returned, after checking it.
void take(Tensor& grad, Tensor& result, const HookContext& told);
[[noreturn, gnu::cold]] void fail_written(const HookLabel& label, HookKind kind);
/// All lists from number `first` on, then retain-grad.
void run_tensor_hooks_from(size_t first, const HookTable& table, Grads& grads, HookContext& told);

/// Tensor hooks of all slots, each list in order; then retain-grad. `told` comes with node and pass
/// filled in. A table's only hook is called here, for little more than the price of the call; not
/// in recordings, whose messages name the running hook.
[[gnu::always_inline]] inline void run_tensor_hooks(const HookTable& table, Grads& grads,
                                                    HookContext& told, bool recording) {
  HookTable::Reader reader(table.lists());
  const HookLists::Slot* sole = reader.value_or_empty().sole_tensor_hook;
  if (recording || !sole || !grads[sole->slot].defined())
    return run_tensor_hooks_from(0, table, grads, told);
  Tensor& grad = grads[sole->slot];
  told.slot = static_cast<int>(sole->slot);
  const HookEntry& entry = sole->hooks[0];
  told.label = &entry.label;
  const uint32_t version = grad.impl_ptr()->storage->version();
  Tensor result;
  try {
    result = static_cast<TensorHook*>(entry.hook.get())->call(grad, told);
  } catch (...) {
    note_hook(entry.label, HookKind::tensor, *told.node);
    throw;
  }
  // Hooks must not write to their arguments: the buffer may be shared with other gradients.
  if (grad.impl_ptr()->storage->version() != version) [[unlikely]]
    fail_written(*told.label, HookKind::tensor);
  if (result.defined() && !result.is_same(grad)) take(grad, result, told);
  if (reader.changed()) [[unlikely]]
    run_tensor_hooks_from(1, table, grads, told);
}
void run_pre_hooks(Node& node, const HookTable& table, Grads& grads);
void run_post_hooks(Node& node, const HookTable& table, Grads& grad_inputs,
                    const Grads& grad_outputs);
/// Checks count, type and shape of what a node produced, and reduces broadcast gradients to the
/// shape of their input.
void validate_outputs(const Node& node, Grads& outputs);
/// Stores a gradient for retain-grad: a copy first, a sum later, never in place.
void write_retained(AutogradMeta& tensor, const Tensor& grad);

}  // namespace visit
}  // namespace grapnel
