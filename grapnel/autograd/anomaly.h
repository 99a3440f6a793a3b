/// Anomaly mode: nodes remember where the forward op was called, and NaNs are caught where they are
/// born.
#pragma once

#include <cstdint>
#include <functional>

#include "grapnel/autograd/node.h"

namespace grapnel {

/// Process-wide switch. While guards live, on whatever threads, it is set as the newest of them
/// says; `set_enabled` changes that one, or what holds without guards.
struct AnomalyMode {
  static bool is_enabled();
  static bool should_check_nan();
  static void set_enabled(bool enabled, bool check_nan = true);
};

/// Switches anomaly mode on while it lives. Guards may end in any order and on any thread: the mode
/// ends with the last.
class DetectAnomalyGuard {
 public:
  explicit DetectAnomalyGuard(bool check_nan = true);
  ~DetectAnomalyGuard();
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  uint64_t number_;
};

namespace anomaly {

/// Whether a value is NaN.
bool has_nan(const Tensor& t);
/// Fails with the message if `t` holds a NaN; in a recording, when the graph gets there.
void require_no_nan(const Tensor& t, std::function<std::string()> message);
/// Fails when output `i` of a node holds a NaN, naming node, output, what it is (if that is known),
/// and the place of the forward call.
void check_node_result(const Tensor& output, const Node& node, size_t i, std::string what);
/// "the parameter 'fc1.weight' of shape [4,4]"
std::string describe_leaf(const Tensor& leaf);
/// The same for a leaf that may have had another shape.
std::string describe_leaf(const Tensor& leaf, const Shape& shape);
/// Fails when grad() of a leaf holds a NaN before a gradient is added to it.
void check_existing_grad(const Tensor& leaf, const Tensor& grad);
/// Fails when result `i` of grad() holds a NaN.
void check_result(const Tensor& result, size_t i);
/// Fails when a hook's result holds a NaN, naming the hook.
void check_hook_result(const Tensor& result, const Node& node, const HookLabel& label,
                       HookKind kind);
/// The forward trace of a node: where it was called, and the nodes whose backward made it.
std::string trace(const Node& node);

}  // namespace anomaly
}  // namespace grapnel
