/// Namespace torch::optim: Grapnel's optimisers, and LibTorch's learning-rate schedules on top of
/// them.
#pragma once

#include <vector>

#include "grapnel/compat/at.h"

namespace torch::optim {

// One by one: LibTorch's schedulers below have names that Grapnel's have, too, and count
// differently.
using grapnel::optim::Adagrad;
using grapnel::optim::AdagradOptions;
using grapnel::optim::AdagradParamState;
using grapnel::optim::Adam;
using grapnel::optim::AdamOptions;
using grapnel::optim::AdamParamState;
using grapnel::optim::AdamW;
using grapnel::optim::AdamWOptions;
using AdamWParamState = grapnel::optim::AdamParamState;
using grapnel::optim::LBFGS;
using grapnel::optim::LBFGSOptions;
using grapnel::optim::LBFGSParamState;
using grapnel::optim::Optimizer;
using grapnel::optim::OptimizerOptions;
using grapnel::optim::OptimizerParamGroup;
using grapnel::optim::OptimizerParamState;
using grapnel::optim::RMSprop;
using grapnel::optim::RMSpropOptions;
using grapnel::optim::RMSpropParamState;
using grapnel::optim::SGD;
using grapnel::optim::SGDOptions;
using grapnel::optim::SGDParamState;

/// Sets the learning rates of all groups, once per call of step().
class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
  virtual ~LRScheduler() = default;
  void step() {
    const std::vector<double> rates = get_lrs();
    auto& groups = optimizer_.param_groups();
    grapnel::check(rates.size() == groups.size(), "LRScheduler: get_lrs returned ", rates.size(),
                   " rates for ", groups.size(), " groups.");
    for (size_t i = 0; i < rates.size(); ++i) groups[i].options().set_lr(rates[i]);
    ++step_count_;
  }

 protected:
  virtual std::vector<double> get_lrs() = 0;
  std::vector<double> get_current_lrs() const {
    std::vector<double> rates;
    for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
    return rates;
  }
  unsigned step_count_ = 0;  ///< calls of step() before this one

 private:
  Optimizer& optimizer_;
};

/// Multiplies the rates by gamma whenever step_size calls of step() lie behind; so the first time
/// in call step_size + 1.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, unsigned step_size, double gamma = 0.1)
      : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
    grapnel::check(step_size > 0, "StepLR: step_size must be positive.");
  }

 private:
  std::vector<double> get_lrs() override {
    std::vector<double> rates = get_current_lrs();
    if (step_count_ > 0 && step_count_ % step_size_ == 0)
      for (double& rate : rates) rate *= gamma_;
    return rates;
  }
  unsigned step_size_;
  double gamma_;
};

/// Multiplies the rates by `factor` when the metric has stopped to improve.
class ReduceLROnPlateauScheduler {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode = min, float factor = 0.1F,
                             int patience = 10, double threshold = 1e-4,
                             ThresholdMode threshold_mode = rel, int cooldown = 0,
                             const std::vector<float>& min_lr = {}, double eps = 1e-8,
                             bool /*verbose*/ = false)
      : schedule_(optimizer,
                  {.mode = static_cast<grapnel::optim::PlateauMode>(mode),
                   .factor = factor,
                   .patience = patience,
                   .threshold = threshold,
                   .threshold_mode = static_cast<grapnel::optim::ThresholdMode>(threshold_mode),
                   .cooldown = cooldown,
                   .min_lr = min_lr.empty() ? 0.0 : min_lr[0],
                   .eps = eps}) {
    for (const float rate : min_lr)
      grapnel::check(rate == min_lr[0],
                     "ReduceLROnPlateauScheduler: the smallest rate is one for all groups, got ",
                     min_lr[0], " and ", rate, ".");
  }
  void step(float metric) { schedule_.step(metric); }

 private:
  grapnel::optim::ReduceLROnPlateau schedule_;
};

}  // namespace torch::optim
