#include "grapnel/optim/in_backward.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"

namespace grapnel::optim {

StepInBackward::StepInBackward(Optimizer& optimizer, const StepInBackwardOptions& options) {
  check(options.accumulate > 0, "StepInBackward: accumulate must be positive, got ",
        options.accumulate, ".");
  for (const OptimizerParamGroup& group : optimizer.param_groups())
    for (const Tensor& p : group.params()) {
      if (!p.requires_grad()) continue;
      const auto step = [&optimizer, options,
                         gradients = std::make_shared<int64_t>(0)](const Tensor& leaf) {
        // A gradient that does not come about in the end does not count.
        record::on_undo([gradients] { --*gradients; });
        if (++*gradients % options.accumulate != 0) return;
        NoGradGuard no_grad;
        if (options.clip_value)
          leaf.mutable_grad().clamp_(-*options.clip_value, *options.clip_value);
        if (options.clip_norm)
          leaf.mutable_grad().mul_(
              (*options.clip_norm / (leaf.grad().norm() + 1e-6)).clamp_max(1.0));
        optimizer.step_param(leaf);
        leaf.reset_grad();
      };
      handles_.push_back(p.register_post_accumulate_grad_hook(
          step, {"optimiser step in backward", base::SourceLine()}));
    }
}

StepInBackward::~StepInBackward() {
  for (HookHandle& handle : handles_) handle.remove();
}

}  // namespace grapnel::optim
