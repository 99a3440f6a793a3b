/// GradScaler: keeps small gradients of f16 from vanishing by scaling the loss, and takes no step
/// when they overflow.
///
///   GradScaler scaler;
///   { Autocast scope(kFloat16); loss = ...; }
///   scaler.scale(loss).backward();
///   scaler.unscale_(opt);                            // only if gradients are clipped or looked at
///   nn::utils::clip_grad_norm_(net->parameters(), 1.0);
///   scaler.step(opt);
///   scaler.update();
///
/// Hooks during backward see gradients times get_scale(): divide by it to compare with a limit.
/// After unscale_() (or inside step()) grad() holds the true ones. bf16 has the range of f32 and
/// needs no scaler.
#pragma once

#include <memory>
#include <unordered_map>

#include "grapnel/io/archive.h"
#include "grapnel/optim/optimizer.h"

namespace grapnel {

/// The first factor and how it changes.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< steps without overflow before the scale grows
  bool enabled = true;             ///< false: everything passes through
};

/// Scales the loss so that f16 gradients neither vanish nor overflow.
class GradScaler {
 public:
  /// Whether a step was taken. Looks at that truth value when it is asked.
  class Step {
   public:
    operator bool() const { return !bad_.defined() || !bad_.item<bool>(); }

   private:
    friend class GradScaler;
    explicit Step(Tensor bad = {}) : bad_(std::move(bad)) {}
    Tensor bad_;
  };

  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(const GradScaler& other);
  GradScaler& operator=(const GradScaler& other);

  Tensor scale(const Tensor& loss) const;
  /// Divides the gradients by the scale, in place; at most once per optimiser between two updates.
  void unscale_(optim::Optimizer& optimizer);
  /// Steps unless a gradient was infinite or NaN. In compiled code that is decided when the graph
  /// runs, so the whole iteration is one graph; only asking whether the step was taken, step hooks
  /// of the optimiser, and one that looks at values itself (LBFGS) need the answer at once.
  Step step(optim::Optimizer& optimizer);
  /// Adapts the scale; once per iteration, after the last step.
  void update();

  double get_scale() const { return options_.enabled ? state_->scale : 1; }
  void save(io::Archive& out) const;
  void load(const io::Archive& in);

 private:
  /// What a step may change, and a failed one puts back.
  struct Numbers {
    double scale = 1;
    int64_t good_steps = 0;
    bool overflowed = false;
  };
  /// Shared with graphs, which change it when they run.
  struct State : Numbers {
    /// Optimisers whose gradients were unscaled since the last update, and whether one of those
    /// was not finite.
    std::unordered_map<const optim::Optimizer*, Tensor> bad;
    int64_t steps = 0, updates = 0;  ///< recorded ones that have not run yet
  };
  /// Changes the state at once.
  template <class Change>
  void change(Change change);
  /// The same when the graph that is being recorded has come so far; `count` of those there are.
  template <class Change>
  void change_later(int64_t State::*count, const variable_list& tensors, Change change);
  /// Before the scale is used.
  void settle() const;

  GradScalerOptions options_;
  std::shared_ptr<State> state_;
};

}  // namespace grapnel
