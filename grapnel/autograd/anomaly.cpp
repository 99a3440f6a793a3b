#include "grapnel/autograd/anomaly.h"

#include <atomic>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/ops/functions.h"

namespace grapnel {

namespace {
std::atomic<bool> enabled{false}, check_nan{true};
}

bool AnomalyMode::is_enabled() { return enabled.load(std::memory_order_relaxed); }
bool AnomalyMode::should_check_nan() { return is_enabled() && check_nan.load(std::memory_order_relaxed); }
void AnomalyMode::set_enabled(bool on, bool nan) {
  enabled = on;
  check_nan = nan;
}

DetectAnomalyGuard::DetectAnomalyGuard(bool nan) : enabled_(enabled), check_nan_(check_nan) { AnomalyMode::set_enabled(true, nan); }
DetectAnomalyGuard::~DetectAnomalyGuard() { AnomalyMode::set_enabled(enabled_, check_nan_); }

namespace anomaly {

bool has_nan(const Tensor& t) {
  if (!t.defined() || !is_floating(t.dtype())) return false;
  NoGradGuard no_grad;
  return isnan(t.detach()).any().item<bool>();
}

std::string trace(const Node& node) {
  if (!node.has_forward_trace())
    return str("No forward trace of ", node.name(), " is known: it was made while anomaly mode was off.\nSwitch it on around the forward pass, too.");
  std::string text = str(node.name(), " was called at ", node.where(), ".");
  for (const Node* n = node.parent().get(); n; n = n->parent().get())
    text += str("\nIt was made by the backward of ", n->name(), ", which was called at ", n->where(), ".");
  return text;
}

void check_node_result(const Grads& outputs, const Node& node) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (has_nan(outputs[i])) fail("anomaly: the backward of ", node.name(), " returned NaN in output ", i, " of ", node.name(), ".\n", trace(node));
}

void check_hook_result(const Tensor& result, const Node& node, const HookLabel& label, HookKind kind) {
  if (has_nan(result)) fail("anomaly: NaN in what the ", describe(label, kind), " left for ", node.name(), ".\n", trace(node));
}

}  // namespace anomaly
}  // namespace grapnel
