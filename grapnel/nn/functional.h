/// Functions behind layers that are made of several ops. What is one op (conv2d, layer_norm,
/// cross_entropy) is in functions/functions.h.
#pragma once

#include <optional>

#include "grapnel/functions/functions.h"

namespace grapnel::nn::functional {

/// x with mean 0 and variance 1 in each group of channels.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// Without eps, the spacing of x's type at 1.
Tensor rms_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

/// x with mean 0 and variance 1 over the pixels of each channel of each example: by its own
/// statistics, or the running ones. While it uses its own it moves the running ones, if there are any.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {},
                     const Tensor& running_var = {}, const Tensor& weight = {},
                     const Tensor& bias = {}, bool use_input_stats = true, double momentum = 0.1,
                     double eps = 1e-5);

/// x [batch, channels, ...] with whole channels set to zero with probability p, the others scaled by
/// 1 / (1 - p).
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool training = true);
/// Dropout to the value that a SELU has for very negative numbers, scaled and shifted so that mean 0
/// and variance 1 stay.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);
/// The same for whole channels.
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);

/// x [batch, channels, length]
Tensor max_pool1d(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride = {},
                  int64_t padding = 0, int64_t dilation = 1, bool ceil_mode = false);
/// The mean of each window.
Tensor avg_pool1d(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride = {},
                  int64_t padding = 0, bool ceil_mode = false, bool count_include_pad = true);
/// Pools the last dimensions to `output_size`, one number per dimension; -1 keeps a dimension.
Tensor adaptive_avg_pool(const Tensor& x, IntArrayRef output_size);
/// The same with the largest values.
Tensor adaptive_max_pool(const Tensor& x, IntArrayRef output_size);

/// Rows of `weight` [n, features] that `indices` names and whose norm is above max_norm are scaled
/// down to it, in place and unrecorded. Rows are told apart without looking at values, so it
/// compiles.
Tensor embedding_renorm_(Tensor weight, const Tensor& indices, double max_norm,
                         double norm_type = 2);

/// What a loss per element becomes.
Tensor reduced(const Tensor& loss, Reduce reduction);
/// Logarithms are cut off at -100, so that a certain wrong answer has a finite loss.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                            Reduce reduction = Reduce::mean);
/// Square within `beta` of the target, straight beyond; divided by beta.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduce reduction = Reduce::mean,
                      double beta = 1);
/// Square within `delta` of the target, straight beyond.
Tensor huber_loss(const Tensor& x, const Tensor& target, Reduce reduction = Reduce::mean,
                  double delta = 1);
/// target * (log(target) - x), with x the logarithm of a probability. `batch_mean` divides the sum
/// by the first size.
enum class KLReduce : uint8_t { none, mean, sum, batch_mean };
/// The reduction of the same name.
constexpr KLReduce kl_reduce(Reduce reduction) { return static_cast<KLReduce>(reduction); }
/// The divergence of Kullback and Leibler of log-probabilities from `target`.
Tensor kl_div(const Tensor& x, const Tensor& target, KLReduce reduction = KLReduce::mean,
              bool log_target = false);

}  // namespace grapnel::nn::functional
