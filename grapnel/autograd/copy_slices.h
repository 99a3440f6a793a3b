/// The node of a base tensor that was changed through one of its views.
///
/// `v = b.select(0, 1); v.mul_(w)` changes a part of b. The gradient of the new b goes through the
/// multiplication where v lies and straight to the old b everywhere else.
#pragma once

#include "grapnel/autograd/node.h"
#include "grapnel/ops/define.h"

namespace grapnel {

class CopySlices final : public Node {
 public:
  /// `fn` is the node of the op on the view; its edges beyond the first become this node's.
  CopySlices(const Tensor& base, const Tensor& view, NodePtr fn);
  std::string name() const override { return "copy_slices"; }
  Grads apply(Grads grads) override;
  void release_saved() override { fn_->release_saved(); }

  /// The saved output of `fn` as what it is after the change: a view of this node's output.
  Tensor as_output_view(const Tensor& saved) const;

 private:
  Tensor in_base_layout(const Tensor& grad) const;

  Geometry base_, view_;
  NodePtr fn_;
};

}  // namespace grapnel
