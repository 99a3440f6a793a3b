/// StepInBackward: each parameter is stepped as soon as its gradient is complete, during the
/// backward pass, and the gradient is freed at once. The gradients of a model then never exist all
/// at the same time.
///
///   optim::AdamW opt(net->parameters());
///   optim::StepInBackward stepping(opt);
///   loss.backward();                        // steps
///
/// The parameters get the same bits as from opt.step() after the pass, since an update looks at its
/// own parameter only. What looks at all of them is not possible here: LBFGS, and clipping by the
/// common norm. Hooks on opt.step() do not fire.
#pragma once

#include <optional>
#include <vector>

#include "grapnel/optim/optimizer.h"

namespace grapnel::optim {

/// What happens to a gradient once its parameter was stepped.
struct StepInBackwardOptions {
  /// A parameter is stepped with every n-th gradient; those before are added up in grad().
  int64_t accumulate = 1;
  /// Clamps the elements of each gradient before the step.
  std::optional<double> clip_value = {};
  /// Scales each gradient before the step so that its own norm is at most this.
  std::optional<double> clip_norm = {};
};

/// Steps as long as it lives. The optimiser must outlive it.
class StepInBackward {
 public:
  explicit StepInBackward(Optimizer& optimizer, const StepInBackwardOptions& options = {});
  ~StepInBackward();
  StepInBackward(const StepInBackward&) = delete;
  StepInBackward& operator=(const StepInBackward&) = delete;

 private:
  std::vector<HookHandle> handles_;
};

}  // namespace grapnel::optim
