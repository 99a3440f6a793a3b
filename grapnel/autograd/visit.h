/// One visit of one node: every hook phase in its order. The eager engine and the compiled backward walk share it.
#pragma once

#include "grapnel/autograd/hook_table.h"
#include "grapnel/autograd/node.h"

namespace grapnel {

/// What a visit has to know about its pass.
struct VisitContext {
  uint64_t pass = 0;
  int depth = 0;
  bool create_graph = false;
};

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

/// Tensor hooks of all slots, each list in order; then retain-grad.
void run_tensor_hooks(Node& node, HookTable& table, Grads& grads, const VisitContext& context);
void run_pre_hooks(Node& node, HookTable& table, Grads& grads);
void run_post_hooks(Node& node, HookTable& table, Grads& grad_inputs, const Grads& grad_outputs);
/// Checks count, type and shape of what a node produced, and reduces broadcast gradients to the shape of their input.
void validate_outputs(const Node& node, Grads& outputs);
/// Stores a gradient for retain-grad: a copy first, a sum later, never in place.
void write_retained(AutogradMeta& tensor, const Tensor& grad);

}  // namespace visit
}  // namespace grapnel
