/// PowerSGD: sends two thin matrices instead of each gradient matrix, and adds what was lost to the
/// next step's gradient.
///
///   auto state = std::make_shared<dist::hooks::PowerSGDState>(
///       dist::hooks::PowerSGDOptions{.matrix_approximation_rank = 4});
///   model.register_comm_hook(state, dist::hooks::power_sgd);
///
/// Note [State is touched in order]
/// Hooks look up and create what they remember while they are called, on the backward thread and in
/// the order of buckets, which is the same on all ranks. Callbacks only use the records they were
/// given. So no lock is needed, and every rank draws the same numbers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "grapnel/dist/grad_bucket.h"
#include "grapnel/functions/generator.h"
#include "grapnel/nn/state_dict.h"

namespace grapnel::dist::hooks {

/// How much was saved.
struct PowerSGDStats {
  int64_t iteration = 0, elements_before = 0, elements_after = 0;
  double rate() const {
    return elements_after > 0
               ? static_cast<double>(elements_before) / static_cast<double>(elements_after)
               : 0;
  }
};

/// How thin, from when on, and what is kept.
struct PowerSGDOptions {
  int64_t matrix_approximation_rank = 1;
  /// Until then gradients are averaged as they are. Must be 2 or more with error feedback or warm
  /// start: the layout of buckets is final only then.
  int64_t start_powerSGD_iter = 1000;
  /// A matrix is compressed if that makes it smaller by more than this factor.
  double min_compression_rate = 2;
  bool use_error_feedback = true;
  /// Starts from the last step's factor instead of random numbers.
  bool warm_start = true;
  double orthogonalization_epsilon = 0;
  uint64_t random_seed = 0;
  int64_t compression_stats_logging_frequency = 10000;
  bool batch_tensors_with_same_shape = false;
  /// Feeds back only what the projection lost of this rank's own gradient, not how that differs
  /// from the mean. Results are the same but for rounding; the memory of a rank whose gradients
  /// always differ from the mean grows more slowly.
  bool local_error_only = false;
  /// Called when statistics are due.
  std::function<void(const PowerSGDStats&)> on_report = {};
};

/// Errors and factors that are kept between steps.
class PowerSGDState {
 public:
  /// Without a group, the wrapper's own is used.
  explicit PowerSGDState(PowerSGDOptions options = {}, ProcessGroup group = {});

  const PowerSGDOptions& options() const { return options_; }
  const ProcessGroup& group() const { return group_; }
  int64_t iter() const { return stats_.iteration; }
  const PowerSGDStats& stats() const { return stats_; }
  Generator& generator() { return generator_; }

  /// What is remembered about a parameter: the error to feed back (f32 or wider) and the two
  /// factors.
  struct Memory {
    Tensor error, p, q;
  };
  Memory& memory(const std::string& parameter);

  /// Everything but the group. Error memories belong to this rank, so every rank saves its own.
  nn::StateDict state_dict() const;
  void load_state_dict(const nn::StateDict& state);

 private:
  friend struct PowerSGDAccess;
  PowerSGDOptions options_;
  ProcessGroup group_;
  Generator generator_;
  PowerSGDStats stats_;
  int64_t next_report_ = 0;
  std::map<std::string, std::shared_ptr<Memory>> memories_;
};

/// Sends gradients as products of thin matrices.
struct PowerSGD {
  static constexpr std::string_view name = "power_sgd";
  Future<Tensor> operator()(PowerSGDState& state, GradBucket& bucket) const;
};
/// The whole bucket as one square matrix: faster, and less accurate.
struct BatchedPowerSGD {
  static constexpr std::string_view name = "batched_power_sgd";
  Future<Tensor> operator()(PowerSGDState& state, GradBucket& bucket) const;
};
inline constexpr PowerSGD power_sgd;
inline constexpr BatchedPowerSGD batched_power_sgd;

/// Makes the columns of every matrix of a batch [b, n, k] orthonormal, in place. A zero column
/// stays zero.
void orthogonalize(const Tensor& matrices, double epsilon = 0);

}  // namespace grapnel::dist::hooks
