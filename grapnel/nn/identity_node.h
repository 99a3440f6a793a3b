/// IdentityNode: passes gradients on unchanged, so that hooks have a place of their own on the way.
#pragma once

#include "grapnel/autograd/node.h"

namespace grapnel::nn {

/// Slot i leads to edge i.
class IdentityNode final : public Node {
 public:
  std::string name() const override { return "identity"; }
  Grads apply(Grads grads) override { return grads; }
  /// A slot for gradients of `t` on their way to `next`; returns its number.
  uint32_t add(const Tensor& t, Edge next) {
    add_next_edge(std::move(next));
    return add_slot(t);
  }
};

}  // namespace grapnel::nn
