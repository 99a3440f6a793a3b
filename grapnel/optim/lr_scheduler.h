/// Learning rates that change over time. PyTorch's names and values.
///
///   optim::CosineAnnealingLR schedule(opt, 100);
///   for (...) { ...; opt.step(); schedule.step(); }
///
/// A schedule is a function from the number of steps and the rate that a group began with to its
/// rate now. Nothing is accumulated from step to step, so a run that is resumed has the very same
/// rates.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grapnel/optim/optimizer.h"

namespace grapnel::optim {

/// Base of schedules: sets the learning rate of an optimiser step by step.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Goes on by one and sets the rates of all groups.
  void step();
  /// Calls of step() so far.
  int64_t last_epoch() const { return epoch_; }
  /// The rates of the groups as they are now.
  std::vector<double> get_last_lr() const;

  using State = std::map<std::string, Scalar>;
  virtual State state_dict() const;
  /// Also sets the rates.
  virtual void load_state_dict(const State& state);

 protected:
  explicit LRScheduler(Optimizer& optimizer);
  /// The rate of a group `epoch` steps after the beginning, when it was `base`.
  virtual double rate(size_t group, double base, int64_t epoch) const = 0;
  /// Sets whatever belongs to this epoch. Constructors of final classes call it with 0.
  virtual void set(int64_t epoch);
  Optimizer& optimizer() const { return optimizer_; }
  const std::vector<double>& base_lrs() const { return base_lrs_; }

 private:
  friend class SequentialLR;
  Optimizer& optimizer_;
  std::vector<double> base_lrs_;
  int64_t epoch_ = 0;
};

/// The rate is the first one times `fn(epoch)`.
class LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t epoch)> fn)
      : LRScheduler(optimizer), fn_(std::move(fn)) {
    set(0);
  }

 protected:
  double rate(size_t, double base, int64_t epoch) const override { return base * fn_(epoch); }

 private:
  std::function<double(int64_t)> fn_;
};

/// Times gamma every step_size epochs.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 protected:
  double rate(size_t, double base, int64_t epoch) const override;

 private:
  int64_t step_size_;
  double gamma_;
};

/// Times gamma at every milestone.
class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 protected:
  double rate(size_t, double base, int64_t epoch) const override;

 private:
  std::vector<int64_t> milestones_;
  double gamma_;
};

/// Times gamma every epoch.
class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {
    set(0);
  }

 protected:
  double rate(size_t, double base, int64_t epoch) const override;

 private:
  double gamma_;
};

/// From start_factor to end_factor of the rate, in total_iters equal steps: a warm-up.
class LinearLR : public LRScheduler {
 public:
  LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
           int64_t total_iters = 5);

 protected:
  double rate(size_t, double base, int64_t epoch) const override;

 private:
  double start_, end_;
  int64_t total_;
};

/// `factor` times the rate for total_iters epochs, then the rate itself.
class ConstantLR : public LRScheduler {
 public:
  ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5)
      : LRScheduler(optimizer), factor_(factor), total_(total_iters) {
    set(0);
  }

 protected:
  double rate(size_t, double base, int64_t epoch) const override {
    return epoch < total_ ? base * factor_ : base;
  }

 private:
  double factor_;
  int64_t total_;
};

/// Down to eta_min in T_max epochs along half a cosine, and up again in the next.
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);

 protected:
  double rate(size_t, double base, int64_t epoch) const override;

 private:
  int64_t T_max_;
  double eta_min_;
};

/// The shape of the cycle.
struct OneCycleOptions {
  double pct_start = 0.3;  ///< share of the steps that goes up
  bool linear = false;     ///< straight lines instead of half cosines
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         ///< the first rate is max_lr divided by it
  double final_div_factor = 1e4;  ///< the last rate is the first one divided by it
};
/// Up to max_lr and down far below the first rate, in total_steps; the momentum (or beta1) goes the
/// other way.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, double max_lr, int64_t total_steps,
             const OneCycleOptions& options = {});

 protected:
  double rate(size_t, double base, int64_t epoch) const override;
  void set(int64_t epoch) override;

 private:
  double between(double first, double top, double last, int64_t epoch) const;
  double max_lr_;
  int64_t total_;
  OneCycleOptions options_;
};

/// One schedule after the other; schedule i + 1 begins at milestones[i], counting from 0 again.
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
               std::vector<int64_t> milestones);

 protected:
  double rate(size_t group, double base, int64_t epoch) const override;

 private:
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
  std::vector<int64_t> milestones_;
};

/// Whether less or more is better.
enum class PlateauMode : uint8_t { min, max };
/// Whether the threshold is a share or a difference.
enum class ThresholdMode : uint8_t { rel, abs };
/// When a plateau is one.
struct PlateauOptions {
  PlateauMode mode = PlateauMode::min;  ///< whether small or large metrics are good
  double factor = 0.1;
  int64_t patience = 10;  ///< epochs without improvement that are let pass
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::rel;
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;  ///< smaller changes of the rate are not made
};
/// Times factor when the metric has stopped to improve. step() takes the metric.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});
  void step(double metric);
  int64_t last_epoch() const { return epoch_; }
  using State = LRScheduler::State;
  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  bool is_better(double metric) const;
  Optimizer& optimizer_;
  PlateauOptions options_;
  int64_t epoch_ = 0, bad_epochs_ = 0, cooling_ = 0;
  double best_;
};

}  // namespace grapnel::optim
