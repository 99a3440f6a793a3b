#include "grapnel/dist/local_sgd.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/warn.h"
#include "grapnel/dist/hooks.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::dist {

namespace {
Tensor whole(int64_t value) { return full({}, value, kInt64); }
int64_t read(const nn::StateDict& state, const char* name) {
  const Tensor* t = state.find(name);
  check(t != nullptr, "load_state_dict: there is no entry ", name, ".");
  return t->item<int64_t>();
}
}  // namespace

namespace hooks {

PostLocalSGDState::PostLocalSGDState(PostLocalSGDOptions options, ProcessGroup group,
                                     ProcessGroup subgroup)
    : options_(options), group_(std::move(group)), subgroup_(std::move(subgroup)) {
  check(options_.start_localSGD_iter >= 0,
        "post-local SGD: start_localSGD_iter must not be negative, got ",
        options_.start_localSGD_iter, ".");
}

nn::StateDict PostLocalSGDState::state_dict() const {
  nn::StateDict state;
  state.insert("start_localSGD_iter", whole(options_.start_localSGD_iter));
  state.insert("post_local_gradient_allreduce", whole(options_.post_local_gradient_allreduce));
  state.insert("iter", whole(iter_));
  return state;
}

void PostLocalSGDState::load_state_dict(const nn::StateDict& state) {
  const PostLocalSGDOptions options{read(state, "start_localSGD_iter"),
                                    read(state, "post_local_gradient_allreduce") != 0};
  iter_ = read(state, "iter");
  options_ = options;
}

Future<Tensor> PostLocalSGD::operator()(PostLocalSGDState& state, GradBucket& bucket) const {
  if (state.iter_ < state.options_.start_localSGD_iter) {
    if (bucket.is_last()) ++state.iter_;
    return AllReduce::run(bucket, bucket.channel_of(state.group_));
  }
  if (!state.options_.post_local_gradient_allreduce) return Future<Tensor>(bucket.buffer());
  if (!state.subgroup_) state.subgroup_ = bucket.channel_of(state.group_).of_this_machine();
  return AllReduce::run(bucket, bucket.channel_of(state.subgroup_));
}

}  // namespace hooks

PeriodicModelAverager::PeriodicModelAverager(ProcessGroup group, ModelAveragerOptions options)
    : group_(std::move(group)), options_(options) {
  check(static_cast<bool>(group_), "PeriodicModelAverager: the group is empty.");
  check(options_.period >= 1, "PeriodicModelAverager: the period must be positive, got ",
        options_.period, ".");
  check(options_.warmup_steps >= 0,
        "PeriodicModelAverager: warmup_steps must not be negative, got ", options_.warmup_steps,
        ".");
  if (options_.period == 1)
    base::warn(
        "PeriodicModelAverager: with period 1, models are averaged after every step; averaging "
        "gradients costs the same and is exact.");
}

bool PeriodicModelAverager::average_parameters(const std::vector<Tensor>& parameters) {
  const int64_t since = step_++ - options_.warmup_steps;
  if (since < 0 || since % options_.period != 0) return false;
  NoGradGuard no_grad;
  std::vector<Work> sums;
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) {
    flat.push_back(p.detach().contiguous().clone().div_(group_.size()));
    sums.push_back(group_.all_reduce(flat.back()));
  }
  for (const Work& sum : sums) sum.wait();
  for (size_t i = 0; i < flat.size(); ++i) parameters[i].copy_(flat[i]);
  return true;
}

nn::StateDict PeriodicModelAverager::state_dict() const {
  nn::StateDict state;
  state.insert("step", whole(step_));
  state.insert("period", whole(options_.period));
  state.insert("warmup_steps", whole(options_.warmup_steps));
  return state;
}

void PeriodicModelAverager::load_state_dict(const nn::StateDict& state) {
  const ModelAveragerOptions options{read(state, "period"), read(state, "warmup_steps")};
  step_ = read(state, "step");
  options_ = options;
}

}  // namespace grapnel::dist
