#include "grapnel/autograd/anomaly.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/hook_table.h"
#include "grapnel/base/at_fork.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace {
std::atomic<bool> enabled{false}, check_nan{true};

/// What holds without guards (number 0), and what each living guard asks for, in the order of their
/// beginning.
struct Setting {
  uint64_t guard = 0;
  bool on = false, check_nan = true;
};
struct Settings {
  static inline constinit base::ProcessMutex mutex{base::ForkOrder::settings};
  static inline uint64_t last_number = 0;
  static std::vector<Setting>& all() {
    static auto* const settings = new std::vector<Setting>(1);  // guards may outlive statics
    return *settings;
  }
  static void apply() {
    enabled.store(all().back().on, std::memory_order_relaxed);
    check_nan.store(all().back().check_nan, std::memory_order_relaxed);
  }
};
}  // namespace

bool AnomalyMode::is_enabled() { return enabled.load(std::memory_order_relaxed); }
bool AnomalyMode::should_check_nan() {
  return is_enabled() && check_nan.load(std::memory_order_relaxed);
}
void AnomalyMode::set_enabled(bool on, bool nan) {
  std::lock_guard lock(Settings::mutex);
  Setting& newest = Settings::all().back();
  newest.on = on;
  newest.check_nan = nan;
  Settings::apply();
}

DetectAnomalyGuard::DetectAnomalyGuard(bool nan) {
  std::lock_guard lock(Settings::mutex);
  number_ = ++Settings::last_number;
  Settings::all().push_back({number_, true, nan});
  Settings::apply();
}
DetectAnomalyGuard::~DetectAnomalyGuard() {
  std::lock_guard lock(Settings::mutex);
  std::erase_if(Settings::all(), [this](const Setting& s) { return s.guard == number_; });
  Settings::apply();
}

namespace anomaly {

bool has_nan(const Tensor& t) {
  if (!t.defined() || !is_floating(t.dtype())) return false;
  NoGradGuard no_grad;
  return isnan(t.detach()).any().item<bool>();
}

std::string trace(const Node& node) {
  if (!node.has_forward_trace())
    return str("No forward trace of ", node.name(),
               " is known: it was made while anomaly mode was off.\nSwitch it on around the "
               "forward pass, too.");
  std::string text = str(node.name(), " was called at ", node.where(), ".");
  for (const Node* n = node.parent().get(); n; n = n->parent().get())
    text += str("\nIt was made by the backward of ", n->name(), ", which was called at ",
                n->where(), ".");
  return text;
}

void require_no_nan(const Tensor& t, std::function<std::string()> message) {
  if (!t.defined() || !is_floating(t.dtype())) return;
  NoGradGuard no_grad;
  effect(
      [message = std::move(message)](const variable_list& x) {
        if (has_nan(x[0])) fail(message());
        return variable_list();
      },
      {t.detach()}, 0);
}

std::string describe_leaf(const Tensor& leaf) { return describe_leaf(leaf, leaf.shape()); }
std::string describe_leaf(const Tensor& leaf, const Shape& shape) {
  const std::string name = leaf.name();
  return str("the parameter ", name.empty() ? "" : "'", name, name.empty() ? "" : "' ", "of shape ",
             shape);
}

void check_node_result(const Tensor& output, const Node& node, size_t i, std::string what) {
  require_no_nan(output, [i, what = std::move(what), held = NodePtr(const_cast<Node*>(&node))] {
    return str("anomaly: the backward of ", held->name(), " returned NaN in output ", i, " of ",
               held->name(), what.empty() ? "" : ", ", what, ".\n", trace(*held));
  });
}

void check_existing_grad(const Tensor& leaf, const Tensor& grad) {
  require_no_nan(grad, [leaf] {
    return str("anomaly: grad() of ", describe_leaf(leaf),
               " already holds NaN, so what this pass adds to it would be lost.\n"
               "Clear it first: reset_grad(), or zero_grad() of the optimiser.");
  });
}

void check_result(const Tensor& result, size_t i) {
  require_no_nan(result, [i, shape = result.defined() ? result.shape() : Shape()] {
    return str("anomaly: result ", i, " of grad(), of shape ", shape,
               ", holds NaN.\nIt comes from the gradients that grad() was given, or from a hook.");
  });
}

void check_hook_result(const Tensor& result, const Node& node, const HookLabel& label,
                       HookKind kind) {
  require_no_nan(result, [label, kind, held = NodePtr(const_cast<Node*>(&node))] {
    return str("anomaly: NaN in what the ", describe(label, kind), " left for ", held->name(),
               ".\n", trace(*held));
  });
}

}  // namespace anomaly
}  // namespace grapnel
