/// Anomaly mode: nodes remember where the forward op was called, and NaNs are caught where they are born.
#pragma once

#include "grapnel/autograd/hook_table.h"
#include "grapnel/autograd/node.h"

namespace grapnel {

/// Process-wide switch.
struct AnomalyMode {
  static bool is_enabled();
  static bool should_check_nan();
  static void set_enabled(bool enabled, bool check_nan = true);
};

/// Switches anomaly mode on while it lives, and restores both flags.
class DetectAnomalyGuard {
 public:
  explicit DetectAnomalyGuard(bool check_nan = true);
  ~DetectAnomalyGuard();
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  bool enabled_, check_nan_;
};

namespace anomaly {

bool has_nan(const Tensor& t);
/// Fails when a node's results hold a NaN, naming node, output and the place of the forward call.
void check_node_result(const Grads& outputs, const Node& node);
/// Fails when a hook's result holds a NaN, naming the hook.
void check_hook_result(const Tensor& result, const Node& node, const HookLabel& label, HookKind kind);
/// The forward trace of a node: where it was called, and the nodes whose backward made it.
std::string trace(const Node& node);

}  // namespace anomaly
}  // namespace grapnel
