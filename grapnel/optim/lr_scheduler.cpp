#include "grapnel/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "grapnel/base/error_kinds.h"

namespace grapnel::optim {

namespace {

double power(double base, int64_t n) { return std::pow(base, static_cast<double>(n)); }
double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

const Scalar& entry(const LRScheduler::State& state, const std::string& name) {
  const auto it = state.find(name);
  check(it != state.end(), "load_state_dict: the saved schedule has no '", name,
        "'; it is of another kind, or the optimiser had other groups.");
  return it->second;
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {
  for (const auto& group : optimizer.param_groups()) base_lrs_.push_back(group.options().get_lr());
}

void LRScheduler::step() { set(++epoch_); }

void LRScheduler::set(int64_t epoch) {
  auto& groups = optimizer_.param_groups();
  check(groups.size() == base_lrs_.size(), "LRScheduler: the optimiser had ", base_lrs_.size(),
        " groups when the schedule was made, now it has ", groups.size(),
        ".\nMake the schedule after the last add_param_group.");
  for (size_t i = 0; i < groups.size(); ++i)
    groups[i].options().set_lr(rate(i, base_lrs_[i], epoch));
}

std::vector<double> LRScheduler::get_last_lr() const {
  std::vector<double> out;
  for (const auto& group : optimizer_.param_groups()) out.push_back(group.options().get_lr());
  return out;
}

LRScheduler::State LRScheduler::state_dict() const {
  State out{{"last_epoch", epoch_}};
  for (size_t i = 0; i < base_lrs_.size(); ++i) out["base_lr." + std::to_string(i)] = base_lrs_[i];
  return out;
}

void LRScheduler::load_state_dict(const State& state) {
  const int64_t epoch = entry(state, "last_epoch").to_int();
  std::vector<double> bases;
  for (size_t i = 0; i < base_lrs_.size(); ++i)
    bases.push_back(entry(state, "base_lr." + std::to_string(i)).to_double());
  epoch_ = epoch;
  base_lrs_ = std::move(bases);
  set(epoch_);
}

// --- one function each ---

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  check_as<ValueError>(step_size > 0, "StepLR: step_size must be positive, got ", step_size, ".");
  set(0);
}
double StepLR::rate(size_t, double base, int64_t epoch) const {
  return base * power(gamma_, epoch / step_size_);
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  std::ranges::sort(milestones_);
  set(0);
}
double MultiStepLR::rate(size_t, double base, int64_t epoch) const {
  return base * power(gamma_, std::ranges::upper_bound(milestones_, epoch) - milestones_.begin());
}

double ExponentialLR::rate(size_t, double base, int64_t epoch) const {
  return base * power(gamma_, epoch);
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor,
                   int64_t total_iters)
    : LRScheduler(optimizer), start_(start_factor), end_(end_factor), total_(total_iters) {
  check(start_ > 0 && start_ <= 1 && end_ >= 0 && end_ <= 1 && total_ > 0,
        "LinearLR: start_factor must be in (0, 1], end_factor in [0, 1] and total_iters positive, "
        "got ",
        start_, ", ", end_, " and ", total_, ".");
  set(0);
}
double LinearLR::rate(size_t, double base, int64_t epoch) const {
  return base * (start_ + (end_ - start_) * share(std::min(epoch, total_), total_));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min)
    : LRScheduler(optimizer), T_max_(T_max), eta_min_(eta_min) {
  check_as<ValueError>(T_max > 0, "CosineAnnealingLR: T_max must be positive, got ", T_max, ".");
  set(0);
}
double CosineAnnealingLR::rate(size_t, double base, int64_t epoch) const {
  return eta_min_ + (base - eta_min_) * (1 + std::cos(std::numbers::pi * share(epoch, T_max_))) / 2;
}

// --- one cycle ---

OneCycleLR::OneCycleLR(Optimizer& optimizer, double max_lr, int64_t total_steps,
                       const OneCycleOptions& options)
    : LRScheduler(optimizer), max_lr_(max_lr), total_(total_steps), options_(options) {
  check_as<ValueError>(total_steps > 0, "OneCycleLR: total_steps must be positive, got ",
                       total_steps, ".");
  check(options.pct_start >= 0 && options.pct_start <= 1,
        "OneCycleLR: pct_start must be between 0 and 1, got ", options.pct_start, ".");
  OneCycleLR::set(0);
}

double OneCycleLR::between(double first, double top, double last, int64_t epoch) const {
  const double turn = options_.pct_start * static_cast<double>(total_) - 1,
               end = static_cast<double>(total_) - 1, at = static_cast<double>(epoch);
  const bool up = at <= turn;
  const double from = up ? first : top, to = up ? top : last;
  const double part = up ? at / turn : (at - turn) / (end - turn);
  return options_.linear ? (to - from) * part + from
                         : to + (from - to) / 2 * (std::cos(std::numbers::pi * part) + 1);
}

double OneCycleLR::rate(size_t, double, int64_t epoch) const {
  const double first = max_lr_ / options_.div_factor;
  return between(first, max_lr_, first / options_.final_div_factor, epoch);
}

void OneCycleLR::set(int64_t epoch) {
  check(epoch < total_, "OneCycleLR: step ", epoch, " was asked for, but the cycle has ", total_,
        " steps.");
  LRScheduler::set(epoch);
  if (!options_.cycle_momentum) return;
  const double momentum =
      between(options_.max_momentum, options_.base_momentum, options_.max_momentum, epoch);
  for (auto& group : optimizer().param_groups()) {
    const auto numbers = group.options().to_map();
    const char* name = numbers.contains("momentum") ? "momentum"
                       : numbers.contains("beta1")  ? "beta1"
                                                    : nullptr;
    check(name != nullptr,
          "OneCycleLR: this optimiser has no momentum to cycle.\nPass {.cycle_momentum = false}.");
    group.options().from_map({{name, momentum}});
  }
}

// --- one after the other ---

SequentialLR::SequentialLR(Optimizer& optimizer,
                           std::vector<std::shared_ptr<LRScheduler>> schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer),
      schedulers_(std::move(schedulers)),
      milestones_(std::move(milestones)) {
  check(!schedulers_.empty() && milestones_.size() + 1 == schedulers_.size(),
        "SequentialLR: ", schedulers_.size(), " schedules need one milestone less, got ",
        milestones_.size(), ".");
  check(std::ranges::is_sorted(milestones_), "SequentialLR: milestones must increase, got ",
        IntArrayRef(milestones_), ".");
  for (const auto& s : schedulers_)
    check(s != nullptr && &s->optimizer_ == &optimizer,
          "SequentialLR: all schedules must be of the same optimiser.");
  // Making the others has set rates already; the first one knows those from before.
  base_lrs_ = schedulers_[0]->base_lrs_;
  set(0);
}

double SequentialLR::rate(size_t group, double base, int64_t epoch) const {
  const auto i =
      static_cast<size_t>(std::ranges::upper_bound(milestones_, epoch) - milestones_.begin());
  return schedulers_[i]->rate(group, base, i == 0 ? epoch : epoch - milestones_[i - 1]);
}

// --- plateau ---

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options)
    : optimizer_(optimizer),
      options_(options),
      best_(options.mode == PlateauMode::min ? std::numeric_limits<double>::infinity()
                                             : -std::numeric_limits<double>::infinity()) {
  check_as<ValueError>(options.factor < 1, "ReduceLROnPlateau: factor must be below 1, got ",
                       options.factor, ".");
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const double sign = options_.mode == PlateauMode::min ? -1 : 1;
  if (std::isinf(best_)) return sign * metric > sign * best_;
  const double bar = options_.threshold_mode == ThresholdMode::rel
                         ? best_ * (1 + sign * options_.threshold)
                         : best_ + sign * options_.threshold;
  return sign * metric > sign * bar;
}

void ReduceLROnPlateau::step(double metric) {
  ++epoch_;
  if (is_better(metric)) best_ = metric, bad_epochs_ = 0;
  else ++bad_epochs_;
  if (cooling_ > 0) --cooling_, bad_epochs_ = 0;
  if (bad_epochs_ <= options_.patience) return;
  for (auto& group : optimizer_.param_groups()) {
    const double old = group.options().get_lr(),
                 reduced = std::max(old * options_.factor, options_.min_lr);
    if (old - reduced > options_.eps) group.options().set_lr(reduced);
  }
  cooling_ = options_.cooldown;
  bad_epochs_ = 0;
}

ReduceLROnPlateau::State ReduceLROnPlateau::state_dict() const {
  return {{"last_epoch", epoch_},
          {"num_bad_epochs", bad_epochs_},
          {"cooldown_counter", cooling_},
          {"best", best_}};
}

void ReduceLROnPlateau::load_state_dict(const State& state) {
  const double best = entry(state, "best").to_double();
  const int64_t epoch = entry(state, "last_epoch").to_int(),
                bad = entry(state, "num_bad_epochs").to_int(),
                cooling = entry(state, "cooldown_counter").to_int();
  best_ = best, epoch_ = epoch, bad_epochs_ = bad, cooling_ = cooling;
}

}  // namespace grapnel::optim
