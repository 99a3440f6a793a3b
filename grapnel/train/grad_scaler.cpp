#include "grapnel/train/grad_scaler.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/invoke.h"
#include "grapnel/ops/record.h"

namespace grapnel {

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), state_(std::make_shared<State>(State())) {
  check(options.init_scale > 0 && options.growth_factor > 1 && options.backoff_factor > 0 &&
            options.backoff_factor < 1 && options.growth_interval > 0,
        "GradScaler: init_scale and growth_interval must be positive, growth_factor above 1 and "
        "backoff_factor in (0, 1), got ",
        options.init_scale, ", ", options.growth_interval, ", ", options.growth_factor, " and ",
        options.backoff_factor, ".");
  state_->scale = options.init_scale;
}

GradScaler::GradScaler(const GradScaler& other)
    : options_(other.options_), state_(std::make_shared<State>(*other.state_)) {}
GradScaler& GradScaler::operator=(const GradScaler& other) {
  options_ = other.options_;
  state_ = std::make_shared<State>(*other.state_);
  return *this;
}

// Note [Steps that are decided later]
// While recording, nobody knows whether a gradient was infinite. The optimiser then records its
// step together with what takes it back (Optimizer::record_step_unless), and what the scaler counts
// changes by effects, which run with the graph. Whatever fails in between is undone like any other
// recorded change.
template <class Change>
void GradScaler::change(Change change) {
  record::on_undo(
      [state = state_, before = Numbers(*state_)] { static_cast<Numbers&>(*state) = before; });
  change(*state_, variable_list());
}

template <class Change>
void GradScaler::change_later(int64_t State::* count, const variable_list& tensors, Change change) {
  invoke_detail::call(
      invoke_detail::Kind::effect,
      [state = state_, count, change](const variable_list& x) -> variable_list {
        --((*state).*count);
        change(*state, x);
        return {};
      },
      tensors, 0);
  ++((*state_).*count);
  record::on_undo([state = state_, count] { --((*state).*count); });
}

void GradScaler::settle() const {
  if (state_->updates > 0) record::flush("the scale of a GradScaler");
}

Tensor GradScaler::scale(const Tensor& loss) const {
  if (!options_.enabled) return loss;
  settle();
  return loss * state_->scale;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  check(
      !state_->bad.contains(&optimizer),
      "GradScaler: the gradients of this optimiser were unscaled already since the last update().");
  settle();
  NoGradGuard no_grad;
  std::vector<Tensor> finite;
  for (const auto& group : optimizer.param_groups())
    for (const Tensor& p : group.params()) {
      if (!p.grad().defined()) continue;
      p.mutable_grad().mul_(1 / state_->scale);
      finite.push_back(p.grad().isfinite().all());
    }
  state_->bad[&optimizer] = finite.empty() ? zeros({}, kBool) : logical_not(stack(finite).all());
  record::on_undo([state = state_, of = &optimizer] { state->bad.erase(of); });
}

GradScaler::Step GradScaler::step(optim::Optimizer& optimizer) {
  if (options_.enabled) {
    if (!state_->bad.contains(&optimizer)) unscale_(optimizer);
    const Tensor bad = state_->bad[&optimizer];
    if (bad.impl().storage->pending() && optimizer.record_step_unless(bad)) {
      change_later(&State::steps, {bad}, [](State& state, const variable_list& x) {
        state.overflowed |= x[0].item<bool>();
      });
      return Step(bad);
    }
    if (bad.item<bool>()) {
      change([](State& state, const variable_list&) { state.overflowed = true; });
      return Step(bad);
    }
  }
  optimizer.step();
  return Step();
}

void GradScaler::update() {
  if (!options_.enabled) return;
  const auto adapt = [options = options_](State& state, const variable_list&) {
    if (state.overflowed) {
      state.scale *= options.backoff_factor;
      state.good_steps = 0;
    } else if (++state.good_steps == options.growth_interval) {
      state.scale *= options.growth_factor;
      state.good_steps = 0;
    }
    state.overflowed = false;
  };
  // What recorded steps found is known when they have run, and numbers are adapted after that.
  const bool recording = record::active();
  if (recording && state_->steps + state_->updates > 0) change_later(&State::updates, {}, adapt);
  else change(adapt);
  if (recording) {
    // What is yet to be computed would look alive; it is gone with the recording anyway.
    std::erase_if(state_->bad, [](const auto& entry) {
      return entry.second.impl().storage->pending() != nullptr;
    });
    record::on_undo([state = state_, before = state_->bad] { state->bad = before; });
  }
  state_->bad.clear();
}

void GradScaler::save(io::Archive& out) const {
  out.write("scale", Scalar(state_->scale));
  out.write("good_steps", Scalar(state_->good_steps));
}
void GradScaler::load(const io::Archive& in) {
  const double scale = in.number("scale").to_double();
  const int64_t good = in.number("good_steps").to_int();
  check(scale > 0, "GradScaler: the saved scale must be positive, got ", scale, ".");
  state_->scale = scale, state_->good_steps = good;
}

}  // namespace grapnel
