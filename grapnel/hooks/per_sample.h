/// PerSampleNorms: how large the gradient of each single example of a batch is, from one ordinary
/// backward pass.
///
///   hooks::PerSampleNorms norms(*net);
///   loss(net(x), y).backward();             // a mean over the examples
///   Tensor n = norms.take();                // [batch]: of each example, over all parameters
///
/// A layer's gradient for one example follows from its input and the gradient of its output, so no
/// second pass is needed. Linear, Conv1d, Conv2d, Embedding, LayerNorm and RMSNorm are known; a
/// layer with other parameters, or one that mixes examples such as BatchNorm, is refused. The first
/// dimension of inputs is the batch. Cost: about one more product per layer of the kind that its
/// weight gradient takes.
#pragma once

#include <memory>
#include <vector>

#include "grapnel/nn/module.h"

namespace grapnel::hooks {

/// Which layers are looked at.
struct PerSampleNormsOptions {
  /// The loss is a mean over the batch, so that each example's own gradient is batch times what
  /// flows back.
  bool loss_is_mean = true;
};

/// Norms of the gradients of single examples.
class PerSampleNorms {
 public:
  explicit PerSampleNorms(nn::Module& module, const PerSampleNormsOptions& options = {});
  ~PerSampleNorms();
  PerSampleNorms(const PerSampleNorms&) = delete;
  PerSampleNorms& operator=(const PerSampleNorms&) = delete;

  /// The norms since the last call. A layer that is called twice in a pass counts each call by
  /// itself.
  Tensor take();

 private:
  struct State;
  PerSampleNormsOptions options_;
  std::shared_ptr<State> state_;
  std::vector<HookHandle> handles_;
};

}  // namespace grapnel::hooks
