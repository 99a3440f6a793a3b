/// One visit of one node: every hook phase in its order. The eager engine and the compiled backward
/// walk share it.
///
/// Note [Looking, not writing]
/// Whoever is given a gradient may look at it, but it is changed by returning another one: its
/// memory may be that of other gradients, and of a tensor of the caller's. Two things see to that,
/// for every mode and every kind of hook.
/// - The pass knows the versions of the gradients on their way, from arrival to use (Pass::arrive,
///   Pass::visit_node), and of the results of grad() until it ends. So whoever writes to one, be it
///   a hook that kept its argument, an unpack hook, a callback or the accumulation into a grad()
///   over the same memory, ends the pass before a wrong number gets further.
/// - RunningHook stands around every call of a hook and is told what the hook is shown, so that a
///   hook that writes to its argument is an error by name, at once. Where nobody can ask (an opaque
///   hook runs later, with the graph) the call takes the question along.
#pragma once

#include <functional>

#include "grapnel/autograd/hook_table.h"
#include "grapnel/autograd/node.h"
#include "grapnel/base/place.h"

namespace grapnel {

namespace visit {

[[noreturn, gnu::cold]] void fail_written(const HookLabel& label, HookKind kind);

/// A number that every write to the memory of gradients changes, and giving one other memory.
inline uint32_t writes_to(const TensorImpl& grad) {
  const Storage* storage = grad.storage.get();
  return storage->version() + static_cast<uint32_t>(reinterpret_cast<uintptr_t>(storage));
}
inline uint32_t writes_to(const Tensor& grad) {
  return grad.defined() ? writes_to(*grad.impl_ptr()) : 0;
}
template <class List>
  requires(!std::same_as<List, Tensor>)
uint32_t writes_to(const List& grads) {
  uint32_t sum = 0;
  for (const Tensor& g : grads) sum += writes_to(g);
  return sum;
}

/// Stands around every call of a hook: says which one runs, for messages about what it does, and
/// sees to it that the gradients it is shown stay as they are.
class RunningHook final : public base::Place {
 public:
  /// At `node`; null for a hook on several tensors, which runs inside one of its parts. `shown` are
  /// tensors and lists of them, which outlive this.
  template <class... Shown>
  RunningHook(const HookLabel& label, HookKind kind, const Node* node, const Shown&... shown)
      : Place(Kind::hook), label_(label), hook_(kind), node_(node) {
    (show(shown), ...);
    writes_ = writes();
  }
  ~RunningHook() = default;
  /// After the call: fails if the hook wrote to what it was shown.
  void check_unchanged() const {
    if (writes() != writes_) [[unlikely]]
      fail_written(label_, hook_);
  }
  /// The innermost one of this thread; empty when none runs.
  static std::string describe();
  /// Who of this thread is being shown the memory of `t`, and may not write to it; empty for none.
  static std::string who_looks_at(const Tensor& t);
  std::shared_ptr<const base::Remembered> remember() const override;

 private:
  void show(const Tensor& t) {
    if (t.defined()) shown_.push_back(t.impl_ptr());
  }
  template <class List>
    requires(!std::same_as<List, Tensor>)
  void show(const List& list) {
    for (const Tensor& t : list) show(t);
  }
  uint32_t writes() const {
    uint32_t sum = 0;
    for (const TensorImpl* t : shown_) sum += writes_to(*t);
    return sum;
  }

  const HookLabel& label_;
  const HookKind hook_;
  const Node* const node_;
  SmallVector<const TensorImpl*, 4> shown_;
  uint32_t writes_ = 0;
};

/// What the formula that runs in the innermost pass of this thread was given, or null.
const Grads* grads_of_formula();

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
/// All lists from number `first` on, then retain-grad.
void run_tensor_hooks_from(size_t first, const HookTable& table, Grads& grads, HookContext& told,
                           bool recording);

/// Tensor hooks of all slots, each list in order; then retain-grad. `told` comes with node and pass
/// filled in. A table's only hook is called here, for little more than the price of the call; not
/// in recordings, whose messages name the running hook.
[[gnu::always_inline]] inline void run_tensor_hooks(const HookTable& table, Grads& grads,
                                                    HookContext& told, bool recording) {
  HookTable::Reader reader(table.lists());
  const HookLists::SlotHooks* sole = reader.value_or_empty().sole_tensor_hook;
  if (recording || !sole || !grads[sole->slot].defined())
    return run_tensor_hooks_from(0, table, grads, told, recording);
  Tensor& grad = grads[sole->slot];
  told.slot = static_cast<int>(sole->slot);
  const HookEntry& entry = *sole->hooks.sole();
  told.label = &entry.label;
  const uint32_t writes = writes_to(*grad.impl_ptr());
  Tensor result;
  try {
    result = static_cast<TensorHook*>(entry.hook.get())->call(grad, told);
  } catch (...) {
    note_hook(entry.label, HookKind::tensor, *told.node);
    throw;
  }
  // See Note [Looking, not writing].
  if (writes_to(*grad.impl_ptr()) != writes) [[unlikely]]
    fail_written(*told.label, HookKind::tensor);
  if (result.defined() && !result.is_same(grad)) take(grad, result, told);
  if (reader.changed()) [[unlikely]]
    run_tensor_hooks_from(1, table, grads, told, recording);
}
void run_pre_hooks(Node& node, const HookTable& table, Grads& grads, bool recording);
void run_post_hooks(Node& node, const HookTable& table, Grads& grad_inputs,
                    const Grads& grad_outputs, bool recording);
/// Checks count, type and shape of what a node produced, and reduces broadcast gradients to the
/// shape of their input.
void validate_outputs(const Node& node, Grads& outputs);
/// Stores a gradient for retain-grad: a copy first, a sum later, never in place.
void write_retained(AutogradMeta& tensor, const Tensor& grad);

}  // namespace visit
}  // namespace grapnel
