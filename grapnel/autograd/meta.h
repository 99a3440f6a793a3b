/// A tensor's place in the graph: its gradient, the node that made it, its hooks, and what it is a
/// view of.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grapnel/autograd/hook_table.h"
#include "grapnel/autograd/node.h"
#include "grapnel/base/pool.h"
#include "grapnel/base/spin_lock.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel {

class AccumulateGrad;

/// How a view came to be; it decides what in-place changes through it may do.
enum class ViewOrigin : uint8_t { ordinary, no_grad, multi_output, custom_function, inference };

struct ViewMeta {
  Tensor base;             ///< never a view itself
  uint64_t base_node = 0;  ///< which node of the base this view's node starts from, see node_number
  ViewOrigin origin = ViewOrigin::ordinary;
};

/// Tells the histories of a base apart: 0 for a tensor without a node.
uint64_t node_number(const Tensor& base);

struct AutogradMeta {
  static void* operator new(size_t bytes) { return base::pool_allocate(bytes); }
  static void operator delete(void* memory, size_t bytes) noexcept {
    base::pool_deallocate(memory, bytes);
  }

  RefCount refs;
  /// Cleared when the tensor dies. Retain-grad entries hold the meta, not the tensor, and skip it
  /// then.
  std::atomic<bool> alive{true};
  bool retains_grad = false;
  uint32_t output_nr = 0;
  Tensor grad;
  NodePtr grad_fn;
  /// Leaves: the accumulate node while a graph uses it. Not owned: the node owns the leaf.
  AccumulateGrad* accumulator = nullptr;
  /// Stand-ins for a leaf, as unpack hooks make them: the leaf's accumulate node.
  NodePtr borrowed_accumulator;
  /// Leaves: all hooks, those of the accumulate node included, so that they outlive it.
  LazyHooks hooks;
  std::unique_ptr<ViewMeta> view;
  /// Bases: tables of view nodes that carry hooks and would be cut off by an in-place change; see
  /// hooked_views.h.
  std::vector<std::weak_ptr<HookTable>> hooked_views;
  std::unique_ptr<std::string> name;
  std::mutex grad_mutex;  ///< held while the accumulate node writes `grad`
  base::SpinLock lock;    ///< guards `accumulator` and `hooked_views`
};

/// The meta of a tensor, made on demand.
AutogradMeta& autograd_meta(const Tensor& t);
/// Null when there is none.
inline AutogradMeta* find_meta(const Tensor& t) {
  return t.defined() ? t.impl().autograd : nullptr;
}

/// The node that made `t`, brought up to date if `t` is a view whose base was changed; null for
/// leaves.
const NodePtr& current_grad_fn(const Tensor& t);
/// Makes `t` output `slot` of `node`, and moves retain-grad along.
void set_history(const Tensor& t, NodePtr node, uint32_t slot);
/// After an in-place change recorded as `node` (slot 0): gives `t`, and its base if it is a view,
/// their new nodes.
void rebase_history(const Tensor& t, NodePtr node);
/// Before `grad` of a tensor is replaced: while recording, remembers it in case that does not
/// happen in the end.
void journal_grad(AutogradMeta& meta);
/// Whether nobody but the holder of this one handle can see the memory of `t`, so that it may be
/// reused. The base that a view keeps alive by itself does not count as somebody.
bool is_sole_owner(const Tensor& t);
/// The table for hooks on `t` itself: the leaf's, or that of its node.
const std::shared_ptr<HookTable>& tensor_hook_table(const Tensor& t, uint32_t& slot);

/// While it lives, gradients of `t` that are recorded on this thread flow to another edge. Module
/// hooks put identity nodes in the way like this, without touching the user's tensor.
class EdgeOverride {
 public:
  EdgeOverride(const Tensor& t, Edge edge);
  ~EdgeOverride();
  EdgeOverride(const EdgeOverride&) = delete;
  EdgeOverride& operator=(const EdgeOverride&) = delete;
};

}  // namespace grapnel
