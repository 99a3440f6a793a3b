/// One visit of one node: every hook phase in its order. The eager engine and the compiled backward walk share it.
#pragma once

#include "grapnel/autograd/hook_table.h"
#include "grapnel/autograd/node.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace visit {

/// Says which hook runs, for messages about what it does.
class RunningHook {
 public:
  RunningHook(const HookLabel& label, HookKind kind);
  ~RunningHook();
  RunningHook(const RunningHook&) = delete;
  RunningHook& operator=(const RunningHook&) = delete;
  /// The innermost one of this thread; empty when none runs.
  static std::string describe();

 private:
  const HookLabel& label_;
  const HookKind kind_;
  const RunningHook* const outer_;
};

/// Calls a table's only tensor hook for little more than the price of the call, and says what is left to do: everything if there
/// is not just one hook, or the lists that came up meanwhile. Not for recordings, whose messages name the running hook.
enum class Left : uint8_t { nothing, everything, new_lists };
Left run_sole_tensor_hook(const HookTable& table, Grads& grads, HookContext& told);
void run_tensor_hooks_from(size_t first, const HookTable& table, Grads& grads, HookContext& told);
/// Tensor hooks of all slots, each list in order; then retain-grad. `told` comes with node and pass filled in.
inline void run_tensor_hooks(const HookTable& table, Grads& grads, HookContext& told) {
  const Left left = record::active() ? Left::everything : run_sole_tensor_hook(table, grads, told);
  if (left != Left::nothing) [[unlikely]] run_tensor_hooks_from(left == Left::everything ? 0 : 1, table, grads, told);
}
void run_pre_hooks(Node& node, const HookTable& table, Grads& grads);
void run_post_hooks(Node& node, const HookTable& table, Grads& grad_inputs, const Grads& grad_outputs);
/// Checks count, type and shape of what a node produced, and reduces broadcast gradients to the shape of their input.
void validate_outputs(const Node& node, Grads& outputs);
/// Stores a gradient for retain-grad: a copy first, a sum later, never in place.
void write_retained(AutogradMeta& tensor, const Tensor& grad);

}  // namespace visit
}  // namespace grapnel
