#include "grapnel/train/grad_scaler.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"

namespace grapnel {

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.init_scale) {
  check(options.init_scale > 0 && options.growth_factor > 1 && options.backoff_factor > 0 &&
            options.backoff_factor < 1 && options.growth_interval > 0,
        "GradScaler: init_scale and growth_interval must be positive, growth_factor above 1 and "
        "backoff_factor in (0, 1), got ",
        options.init_scale, ", ", options.growth_interval, ", ", options.growth_factor, " and ",
        options.backoff_factor, ".");
}

Tensor GradScaler::scale(const Tensor& loss) const {
  return options_.enabled ? loss * scale_ : loss;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  check(
      unscaled_.insert(&optimizer).second,
      "GradScaler: the gradients of this optimiser were unscaled already since the last update().");
  NoGradGuard no_grad;
  std::vector<Tensor> finite;
  for (const auto& group : optimizer.param_groups())
    for (const Tensor& p : group.params()) {
      if (!p.grad().defined()) continue;
      p.mutable_grad().mul_(1 / scale_);
      finite.push_back(p.grad().isfinite().all());
    }
  bad_[&optimizer] = finite.empty() ? zeros({}, kBool) : logical_not(stack(finite).all());
}

bool GradScaler::step(optim::Optimizer& optimizer) {
  if (options_.enabled) {
    if (!unscaled_.contains(&optimizer)) unscale_(optimizer);
    if (bad_[&optimizer].item<bool>()) {
      overflowed_ = true;
      return false;
    }
  }
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (overflowed_) {
    scale_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_interval) {
    scale_ *= options_.growth_factor;
    good_steps_ = 0;
  }
  overflowed_ = false;
  unscaled_.clear();
  bad_.clear();
}

void GradScaler::save(io::Archive& out) const {
  out.write("scale", Scalar(scale_));
  out.write("good_steps", Scalar(good_steps_));
}
void GradScaler::load(const io::Archive& in) {
  const double scale = in.number("scale").to_double();
  const int64_t good = in.number("good_steps").to_int();
  check(scale > 0, "GradScaler: the saved scale must be positive, got ", scale, ".");
  scale_ = scale, good_steps_ = good;
}

}  // namespace grapnel
