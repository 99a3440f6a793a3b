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

#include <unordered_map>
#include <unordered_set>

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
  explicit GradScaler(const GradScalerOptions& options = {});

  Tensor scale(const Tensor& loss) const;
  /// Divides the gradients by the scale, in place; at most once per optimiser between two updates.
  void unscale_(optim::Optimizer& optimizer);
  /// Steps unless a gradient was infinite or NaN; looks at that one truth value. True if the step
  /// was taken.
  bool step(optim::Optimizer& optimizer);
  /// Adapts the scale; once per iteration, after the last step.
  void update();

  double get_scale() const { return options_.enabled ? scale_ : 1; }
  void save(io::Archive& out) const;
  void load(const io::Archive& in);

 private:
  GradScalerOptions options_;
  double scale_;
  int64_t good_steps_ = 0;
  bool overflowed_ = false;
  std::unordered_set<const optim::Optimizer*> unscaled_;
  std::unordered_map<const optim::Optimizer*, Tensor> bad_;
};

}  // namespace grapnel
