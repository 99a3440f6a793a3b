/// The node at a leaf: adds what arrives to the leaf's grad(), then calls the post-accumulate
/// hooks.
#pragma once

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
  /// The same as apply, and leaves in `grads[0]` what post-hooks are to see: see Note [Adopting
  /// gradients].
  void accumulate(Grads& grads, bool seed_is_callers);

 protected:
  LazyHooks* leaf_hooks() const override { return &find_meta(leaf_)->hooks; }
  bool release_owner() const noexcept override;

 private:
  Tensor grad_now() const;
  void write(Tensor& grad, bool seed_is_callers);
  void run_post_accumulate_hooks();
  void record_post_accumulate_hook(const HookEntry& entry, PostAccumulateGradHook& hook);

  Tensor leaf_;
};

}  // namespace grapnel
