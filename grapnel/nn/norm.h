/// Layers that normalise: BatchNorm1d to 3d, InstanceNorm1d to 3d, LayerNorm, GroupNorm,
/// RMSNorm.
#pragma once

#include <optional>
#include <vector>

#include "grapnel/base/arg.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

struct BatchNormOptions {
  BatchNormOptions(int64_t num_features) : num_features_(num_features) {}
  GRAPNEL_ARG(int64_t, num_features);
  GRAPNEL_ARG(double, eps) = 1e-5;
  /// How far the running statistics move per batch; without a number they are the plain mean over
  /// all batches.
  GRAPNEL_ARG(std::optional<double>, momentum) = 0.1;
  GRAPNEL_ARG(bool, affine) = true;
  GRAPNEL_ARG(bool, track_running_stats) = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

/// Normalises every channel: by the batch's mean and variance in training, by the running ones
/// otherwise.
template <class Derived>
class BatchNormImpl : public Cloneable<Derived> {
 public:
  explicit BatchNormImpl(const BatchNormOptions& options_) : options(options_) { start(); }
  explicit BatchNormImpl(int64_t num_features) : BatchNormImpl(BatchNormOptions(num_features)) {}

  void reset() override;
  void reset_running_stats();
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  BatchNormOptions options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  void start();
};

/// Input [batch, channels] or [batch, channels, length].
class BatchNorm1dImpl : public BatchNormImpl<BatchNorm1dImpl> {
 public:
  using BatchNormImpl::BatchNormImpl;
  static constexpr const char* title = "BatchNorm1d";
  static constexpr int64_t least_dims = 2, most_dims = 3;
};
GRAPNEL_MODULE(BatchNorm1d);
/// Input [batch, channels, height, width].
class BatchNorm2dImpl : public BatchNormImpl<BatchNorm2dImpl> {
 public:
  using BatchNormImpl::BatchNormImpl;
  static constexpr const char* title = "BatchNorm2d";
  static constexpr int64_t least_dims = 4, most_dims = 4;
};
GRAPNEL_MODULE(BatchNorm2d);
/// Input [batch, channels, depth, height, width].
class BatchNorm3dImpl : public BatchNormImpl<BatchNorm3dImpl> {
 public:
  using BatchNormImpl::BatchNormImpl;
  static constexpr const char* title = "BatchNorm3d";
  static constexpr int64_t least_dims = 5, most_dims = 5;
};
GRAPNEL_MODULE(BatchNorm3d);
extern template class BatchNormImpl<BatchNorm1dImpl>;
extern template class BatchNormImpl<BatchNorm2dImpl>;
extern template class BatchNormImpl<BatchNorm3dImpl>;

struct InstanceNormOptions {
  InstanceNormOptions(int64_t num_features) : num_features_(num_features) {}
  GRAPNEL_ARG(int64_t, num_features);
  GRAPNEL_ARG(double, eps) = 1e-5;
  /// How far the running statistics move per batch.
  GRAPNEL_ARG(double, momentum) = 0.1;
  GRAPNEL_ARG(bool, affine) = false;
  GRAPNEL_ARG(bool, track_running_stats) = false;
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;

/// Normalises every channel of every example by its own mean and variance; outside of training by
/// the running ones, if they are tracked.
template <class Derived>
class InstanceNormImpl : public Cloneable<Derived> {
 public:
  explicit InstanceNormImpl(const InstanceNormOptions& options_);
  explicit InstanceNormImpl(int64_t num_features)
      : InstanceNormImpl(InstanceNormOptions(num_features)) {}

  void reset() override;
  void reset_running_stats();
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Also one example without its batch dimension.
  Tensor forward(const Tensor& input);

  InstanceNormOptions options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};

/// Input [batch, channels, length].
class InstanceNorm1dImpl : public InstanceNormImpl<InstanceNorm1dImpl> {
 public:
  using InstanceNormImpl::InstanceNormImpl;
  static constexpr const char* title = "InstanceNorm1d";
  static constexpr int64_t dims = 1;
};
GRAPNEL_MODULE(InstanceNorm1d);
/// Input [batch, channels, height, width].
class InstanceNorm2dImpl : public InstanceNormImpl<InstanceNorm2dImpl> {
 public:
  using InstanceNormImpl::InstanceNormImpl;
  static constexpr const char* title = "InstanceNorm2d";
  static constexpr int64_t dims = 2;
};
GRAPNEL_MODULE(InstanceNorm2d);
/// Input [batch, channels, depth, height, width].
class InstanceNorm3dImpl : public InstanceNormImpl<InstanceNorm3dImpl> {
 public:
  using InstanceNormImpl::InstanceNormImpl;
  static constexpr const char* title = "InstanceNorm3d";
  static constexpr int64_t dims = 3;
};
GRAPNEL_MODULE(InstanceNorm3d);
extern template class InstanceNormImpl<InstanceNorm1dImpl>;
extern template class InstanceNormImpl<InstanceNorm2dImpl>;
extern template class InstanceNormImpl<InstanceNorm3dImpl>;

struct LayerNormOptions {
  LayerNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  GRAPNEL_ARG(std::vector<int64_t>, normalized_shape);
  GRAPNEL_ARG(double, eps) = 1e-5;
  GRAPNEL_ARG(bool, elementwise_affine) = true;
  GRAPNEL_ARG(bool, bias) = true;
};
/// Normalises over the last dimensions, which have the given shape.
class LayerNormImpl : public Cloneable<LayerNormImpl> {
 public:
  explicit LayerNormImpl(const LayerNormOptions& options_);
  explicit LayerNormImpl(std::vector<int64_t> normalized_shape)
      : LayerNormImpl(LayerNormOptions(std::move(normalized_shape))) {}
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  LayerNormOptions options;
  Tensor weight, bias;
};
GRAPNEL_MODULE(LayerNorm);

struct GroupNormOptions {
  GroupNormOptions(int64_t num_groups, int64_t num_channels)
      : num_groups_(num_groups), num_channels_(num_channels) {}
  GRAPNEL_ARG(int64_t, num_groups);
  GRAPNEL_ARG(int64_t, num_channels);
  GRAPNEL_ARG(double, eps) = 1e-5;
  GRAPNEL_ARG(bool, affine) = true;
};
/// Normalises each example over groups of neighbouring channels. Input [batch, channels, ...].
class GroupNormImpl : public Cloneable<GroupNormImpl> {
 public:
  explicit GroupNormImpl(const GroupNormOptions& options_);
  GroupNormImpl(int64_t num_groups, int64_t num_channels)
      : GroupNormImpl(GroupNormOptions(num_groups, num_channels)) {}
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  GroupNormOptions options;
  Tensor weight, bias;
};
GRAPNEL_MODULE(GroupNorm);

struct RMSNormOptions {
  RMSNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  GRAPNEL_ARG(std::vector<int64_t>, normalized_shape);
  /// Without a number, the spacing of the input's type at 1.
  GRAPNEL_ARG(std::optional<double>, eps);
  GRAPNEL_ARG(bool, elementwise_affine) = true;
};
/// Divides by the root of the mean square over the last dimensions.
class RMSNormImpl : public Cloneable<RMSNormImpl> {
 public:
  explicit RMSNormImpl(const RMSNormOptions& options_);
  explicit RMSNormImpl(std::vector<int64_t> normalized_shape)
      : RMSNormImpl(RMSNormOptions(std::move(normalized_shape))) {}
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  RMSNormOptions options;
  Tensor weight;
};
GRAPNEL_MODULE(RMSNorm);

}  // namespace grapnel::nn
