/// Node and Edge: one recorded application of an op's gradient, and where its results flow.
///
/// A node has one slot per output of the forward op and one edge per input. Nodes are immutable
/// once made (hooks aside), so holding the roots of a pass keeps everything the pass can reach
/// alive.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>

#include "grapnel/base/intrusive_ptr.h"
#include "grapnel/base/small_vector.h"
#include "grapnel/ops/op.h"
#include "grapnel/tensor/function_hook.h"
#include "grapnel/tensor/hook_callable.h"

namespace grapnel {

class Node;
using NodePtr = IntrusivePtr<Node>;

/// Slot `slot` of `node`; a null node means that no gradient flows.
struct Edge {
  NodePtr node;
  uint32_t slot = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};
using EdgeList = SmallVector<Edge, 2>;

/// What a gradient that arrives at a slot must look like.
struct SlotMeta {
  Shape sizes;
  DType dtype = DType::Float32;
  Device device = {};
  TensorOptions options() const { return TensorOptions(dtype).device(device); }
};

class HookTable;
/// The table of one owner, made when the first hook is registered. Asking for it costs one load;
/// threads may ask and make at once.
class LazyHooks {
 public:
  HookTable* get() const { return table_.load(std::memory_order_acquire); }
  const std::shared_ptr<HookTable>& make();
  /// Takes over a table, before anybody else can ask.
  void adopt(std::shared_ptr<HookTable> table) {
    owner_ = std::move(table);
    table_.store(owner_.get(), std::memory_order_release);
  }
  /// Gives the table away, once nobody is left who could ask for it.
  std::shared_ptr<HookTable> release() {
    table_.store(nullptr, std::memory_order_release);
    return std::move(owner_);
  }

 private:
  std::atomic<HookTable*> table_{nullptr};
  std::atomic<bool> locked_{false};
  std::shared_ptr<HookTable> owner_;  ///< written once, until released
};

/// One application of an op in the backward graph. Hooks attach to it.
class Node {
 public:
  static void* operator new(size_t bytes);
  static void operator delete(void* memory, size_t bytes) noexcept;
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// The op's name, `accumulate_grad` for leaves, the type's name for user functions.
  virtual std::string name() const = 0;
  /// Gradients of the outputs in, gradients of the inputs out, one per edge. Undefined stands for
  /// zero.
  virtual Grads apply(Grads grads) = 0;
  /// The same for a pass, which still needs the list afterwards: nodes that only read it need no copy.
  virtual Grads apply_to(const Grads& grads) { return apply(grads); }
  /// Drops what was saved for the gradient; running the node again is then an error.
  virtual void release_saved() {}
  /// Whether the formula is the user's; its exceptions pass through untouched.
  virtual bool is_user_code() const { return false; }
  /// Runs the node in a recording, on pending gradients. `saved` can put stand-ins in the place of
  /// members for the time of the call.
  virtual Grads apply_with_saved(Grads grads, SwapSavedVariables&) {
    return apply(std::move(grads));
  }

  bool is_accumulate() const { return accumulate_; }
  uint64_t sequence_nr() const { return sequence_nr_; }

  const EdgeList& next_edges() const { return next_edges_; }
  const Edge& next_edge(size_t i) const { return next_edges_[i]; }
  size_t num_outputs() const { return next_edges_.size(); }
  void add_next_edge(Edge edge) { next_edges_.push_back(std::move(edge)); }

  size_t num_inputs() const { return slots_.size(); }
  const SlotMeta& slot(size_t i) const { return slots_[i]; }
  uint32_t add_slot(const Tensor& t) {
    slots_.push_back({t.shape(), t.dtype(), t.device()});
    return static_cast<uint32_t>(slots_.size() - 1);
  }

  /// Calls hook(grad_outputs) before this node runs; a returned list of the same length replaces
  /// them.
  template <class F>
  HookHandle register_prehook(F&& hook, HookOptions options = {});
  /// Calls hook(grad_inputs, grad_outputs) after this node ran; a returned list replaces
  /// grad_inputs.
  template <class F>
  HookHandle register_hook(F&& hook, HookOptions options = {});
  template <class F, HookName N>
  HookHandle register_prehook(F&& hook, N&& name,
                              base::SourceLine site = std::source_location::current()) {
    return register_prehook(std::forward<F>(hook),
                            HookOptions{.name = std::forward<N>(name), .site = site});
  }
  template <class F, HookName N>
  HookHandle register_hook(F&& hook, N&& name,
                           base::SourceLine site = std::source_location::current()) {
    return register_hook(std::forward<F>(hook),
                         HookOptions{.name = std::forward<N>(name), .site = site});
  }
  HookHandle add_pre_hook(std::unique_ptr<FunctionPreHook> hook, HookOptions options = {});
  HookHandle add_post_hook(std::unique_ptr<FunctionPostHook> hook, HookOptions options = {});

  /// Null while no hook was ever registered: the price of an unused hook slot is this one check.
  HookTable* hooks() const { return accumulate_ ? leaf_hooks()->get() : hooks_.get(); }
  /// The same, and null where there are no hooks of these kinds. See hook_table.h.
  template <std::same_as<HookKind>... Kinds>
    requires(sizeof...(Kinds) > 0)
  [[gnu::always_inline]] inline const HookTable* hooks(Kinds... kinds) const;
  const std::shared_ptr<HookTable>& make_hooks() {
    return accumulate_ ? leaf_hooks()->make() : hooks_.make();
  }

  /// Address of the call in the user's program that made this node.
  const void* site() const { return site_; }
  void set_site(const void* address) { site_ = address; }
  /// "file.cpp:12 (function)", or a sentence that says why it is unknown.
  std::string where() const;
  /// The object that stands for this node in another language, which looks after both: see
  /// base/foreign.h.
  void* wrapper = nullptr;
  /// How many own the node: handles, edges of other nodes, tensors.
  uint32_t use_count() const noexcept { return refs_.use_count(); }
  /// Under anomaly mode: the node whose backward made this one.
  const NodePtr& parent() const;
  bool has_forward_trace() const { return anomaly_ != nullptr; }

  void intrusive_retain() const noexcept { refs_.retain(); }
  void intrusive_release() const noexcept {
    if (accumulate_ ? release_owner() : refs_.release()) destroy(const_cast<Node*>(this));
  }

 protected:
  enum class Kind : uint8_t { ordinary, accumulate };
  explicit Node(Kind kind = Kind::ordinary);
  /// Accumulate nodes keep their hooks on the leaf.
  virtual LazyHooks* leaf_hooks() const { return nullptr; }
  /// True when the last owner let go.
  virtual bool release_owner() const noexcept { return refs_.release(); }
  mutable std::atomic<bool> locked_{false};

 private:
  static void destroy(Node* node) noexcept;
  HookHandle add_hook(HookKind kind, std::shared_ptr<HookBase> hook, HookOptions options);

  mutable RefCount refs_;
  bool accumulate_;
  uint64_t sequence_nr_;
  const void* site_ = nullptr;
  LazyHooks hooks_;
  struct AnomalyTrace;
  std::unique_ptr<AnomalyTrace> anomaly_;
  EdgeList next_edges_;
  SmallVector<SlotMeta, 1> slots_;
};
static_assert(sizeof(Node) == 264);

/// Where a gradient of `t` flows: the slot of its node, or its accumulate node; empty when it wants
/// none.
Edge gradient_edge(const Tensor& t);
/// The leaf's accumulate node, made on demand.
NodePtr grad_accumulator(const Tensor& leaf);

// --- any callable as a node hook ---

/// A list hook as the engine calls it: no value means "unchanged".
class NodePreHook : public HookBase {
 public:
  virtual ListHookResult call(const variable_list& grad_outputs) = 0;
};
/// A hook after a node, in its general form.
class NodePostHook : public HookBase {
 public:
  virtual ListHookResult call(const variable_list& grad_inputs,
                              const variable_list& grad_outputs) = 0;
};

/// A callable as a hook before a node.
template <class F>
class CallableNodePreHook final : public NodePreHook {
 public:
  static_assert(std::is_invocable_v<F&, const variable_list&>,
                "a node pre-hook is called as hook(const variable_list& grad_outputs)");
  explicit CallableNodePreHook(F f) : f_(std::move(f)) {}
  ListHookResult call(const variable_list& grad_outputs) override {
    return list_result([&]() -> decltype(auto) { return std::invoke(f_, grad_outputs); });
  }
  void compiled_args(CompiledNodeArgs& args) const override {
    if constexpr (DeclaresItself<F>) f_.compiled_args(args);
  }
  bool opaque() const override { return is_opaque<F>; }
  const void* foreign() const override { return foreign_part_of(f_); }

 private:
  F f_;
};

/// A callable as a hook after a node.
template <class F>
class CallableNodePostHook final : public NodePostHook {
 public:
  static_assert(std::is_invocable_v<F&, const variable_list&, const variable_list&>,
                "a node post-hook is called as hook(const variable_list& grad_inputs, const "
                "variable_list& grad_outputs)");
  explicit CallableNodePostHook(F f) : f_(std::move(f)) {}
  ListHookResult call(const variable_list& grad_inputs,
                      const variable_list& grad_outputs) override {
    return list_result(
        [&]() -> decltype(auto) { return std::invoke(f_, grad_inputs, grad_outputs); });
  }
  void compiled_args(CompiledNodeArgs& args) const override {
    if constexpr (DeclaresItself<F>) f_.compiled_args(args);
  }
  bool opaque() const override { return is_opaque<F>; }
  const void* foreign() const override { return foreign_part_of(f_); }

 private:
  F f_;
};

template <class F>
HookHandle Node::register_prehook(F&& hook, HookOptions options) {
  return add_hook(HookKind::node_pre,
                  std::make_shared<CallableNodePreHook<std::decay_t<F>>>(std::forward<F>(hook)),
                  std::move(options));
}
template <class F>
HookHandle Node::register_hook(F&& hook, HookOptions options) {
  return add_hook(HookKind::node_post,
                  std::make_shared<CallableNodePostHook<std::decay_t<F>>>(std::forward<F>(hook)),
                  std::move(options));
}

}  // namespace grapnel
