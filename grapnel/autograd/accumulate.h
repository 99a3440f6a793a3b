/// The node at a leaf: adds what arrives to the leaf's grad(), then calls the post-accumulate
/// hooks.
#pragma once

#include <atomic>

#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/node.h"

namespace grapnel {

/// Strides a gradient of `leaf` should have: the leaf's own when it is dense, else contiguous.
Shape grad_strides(const TensorImpl& leaf);

/// The node of a leaf: it adds what arrives to `grad()`.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(Tensor leaf);
  std::string name() const override { return "accumulate_grad"; }
  Grads apply(Grads grads) override;

  const Tensor& leaf() const { return leaf_; }
  /// For a leaf that gets a history: what stands in for it where it was used as a leaf.
  void set_leaf(Tensor stand_in) { leaf_ = std::move(stand_in); }
  /// The leaf has other data now. Values that were saved before are not those of the leaf any more;
  /// and if shape or type differ, graphs made before can no longer lead to it.
  void on_new_data(bool still_fits) {
    data_number_.fetch_add(1, std::memory_order_relaxed);
    if (!still_fits) outdated_.store(true, std::memory_order_relaxed);
  }
  /// How often the leaf was given other data.
  uint32_t data_number() const { return data_number_.load(std::memory_order_relaxed); }
  /// Whether gradients of the graph that this node belongs to cannot fit the leaf any more.
  bool is_outdated() const { return outdated_.load(std::memory_order_relaxed); }
  /// Fails if a gradient of the graph that this node belongs to does not fit the leaf as it is now.
  void check_leaf() const {
    if (is_outdated() || !fits()) [[unlikely]]
      fail_outdated();
  }
  /// The same as apply, and leaves in `grads[0]` what post-hooks are to see: see Note [Adopting
  /// gradients].
  void accumulate(Grads& grads, bool seed_is_callers, bool recording);

 protected:
  LazyHooks* leaf_hooks() const override { return &find_meta(leaf_)->hooks; }
  bool release_owner() const noexcept override;

 private:
  Tensor grad_now() const;
  bool fits() const {
    const SlotMeta& at_forward = slot(0);
    const TensorImpl& leaf = leaf_.impl();
    return leaf.sizes == at_forward.sizes && leaf.dtype == at_forward.dtype;
  }
  [[noreturn, gnu::cold]] void fail_outdated() const;
  void write(Tensor& grad, bool seed_is_callers, bool recording);
  void run_post_accumulate_hooks(bool recording);
  void record_post_accumulate_hook(const HookEntry& entry, PostAccumulateGradHook& hook);

  Tensor leaf_;
  std::atomic<uint32_t> data_number_{0};
  std::atomic<bool> outdated_{false};
};

}  // namespace grapnel
