/// Post-local SGD: after a while, gradients are averaged only among the ranks of one machine, and
/// models now and then over all ranks.
///
///   auto state = std::make_shared<dist::hooks::PostLocalSGDState>(
///       dist::hooks::PostLocalSGDOptions{.start_localSGD_iter = 100});
///   model.register_comm_hook(state, dist::hooks::post_local_sgd);
///   dist::PeriodicModelAverager averager(group, {.period = 4, .warmup_steps = 100});
///   ... optimizer.step(); averager.average_parameters(model.parameters());
#pragma once

#include "grapnel/dist/grad_bucket.h"
#include "grapnel/nn/state_dict.h"

namespace grapnel::dist {

namespace hooks {

/// When that changes, and between whom.
struct PostLocalSGDOptions {
  int64_t start_localSGD_iter = 0;
  /// Afterwards: whether gradients are still averaged within the subgroup, or stay as they are.
  bool post_local_gradient_allreduce = true;
};

/// What that has to remember.
class PostLocalSGDState {
 public:
  /// Without a group, the wrapper's own is used; without a subgroup, the ranks of one machine.
  explicit PostLocalSGDState(PostLocalSGDOptions options, ProcessGroup group = {},
                             ProcessGroup subgroup = {});
  const PostLocalSGDOptions& options() const { return options_; }
  int64_t iter() const { return iter_; }
  /// Everything but the groups.
  nn::StateDict state_dict() const;
  void load_state_dict(const nn::StateDict& state);

 private:
  friend struct PostLocalSGD;
  PostLocalSGDOptions options_;
  ProcessGroup group_, subgroup_;
  int64_t iter_ = 0;
};

/// Averages over all ranks at first, later within subgroups.
struct PostLocalSGD {
  static constexpr std::string_view name = "post_local_sgd";
  Future<Tensor> operator()(PostLocalSGDState& state, GradBucket& bucket) const;
};
inline constexpr PostLocalSGD post_local_sgd;

}  // namespace hooks

/// When models are averaged.
struct ModelAveragerOptions {
  int64_t period = 1;
  /// The same number as start_localSGD_iter.
  int64_t warmup_steps = 0;
};

/// Averages parameters over a group at step warmup, warmup + period, warmup + 2 * period and so on.
class PeriodicModelAverager {
 public:
  PeriodicModelAverager(ProcessGroup group, ModelAveragerOptions options);
  /// Call it after every optimiser step. Returns whether it averaged.
  bool average_parameters(const std::vector<Tensor>& parameters);
  int64_t step() const { return step_; }
  nn::StateDict state_dict() const;
  void load_state_dict(const nn::StateDict& state);

 private:
  ProcessGroup group_;
  ModelAveragerOptions options_;
  int64_t step_ = 0;
};

}  // namespace grapnel::dist
