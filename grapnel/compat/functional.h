/// Namespace torch::nn::functional: functions of tensors with LibTorch's options structs.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "grapnel/base/arg.h"
#include "grapnel/compat/modules.h"

namespace torch {
/// How losses are told to reduce in options: `.reduction(torch::kSum)`.
inline constexpr grapnel::Reduce kNone = grapnel::Reduce::none;
inline constexpr grapnel::Reduce kMean = grapnel::Reduce::mean;
inline constexpr grapnel::Reduce kSum = grapnel::Reduce::sum;
}  // namespace torch

namespace torch::nn {

namespace functional {

// --- activations ---
using ReLUFuncOptions = ReLUOptions;
inline Tensor relu(Tensor input, const ReLUFuncOptions& options = {}) {
  return options.inplace() ? input.relu_() : input.relu();
}
inline Tensor sigmoid(const Tensor& input) { return input.sigmoid(); }
inline Tensor tanh(const Tensor& input) { return input.tanh(); }
inline Tensor silu(const Tensor& input) { return input.silu(); }
inline Tensor mish(const Tensor& input) { return grapnel::mish(input); }
inline Tensor softsign(const Tensor& input) { return grapnel::softsign(input); }
inline Tensor tanhshrink(const Tensor& input) { return grapnel::tanhshrink(input); }
inline Tensor logsigmoid(const Tensor& input) { return grapnel::log_sigmoid(input); }

// Activations have the options of the layers, `inplace` included.
#define GRAPNEL_COMPAT_ACTIVATION(function, Name)                               \
  using Name##FuncOptions = Name##Options;                                      \
  inline Tensor function(Tensor input, const Name##FuncOptions& options = {}) { \
    return Name##Impl(options).forward(input);                                  \
  }
GRAPNEL_COMPAT_ACTIVATION(selu, SELU)
GRAPNEL_COMPAT_ACTIVATION(relu6, ReLU6)
GRAPNEL_COMPAT_ACTIVATION(hardtanh, Hardtanh)
GRAPNEL_COMPAT_ACTIVATION(leaky_relu, LeakyReLU)
GRAPNEL_COMPAT_ACTIVATION(elu, ELU)
GRAPNEL_COMPAT_ACTIVATION(celu, CELU)
GRAPNEL_COMPAT_ACTIVATION(hardshrink, Hardshrink)
GRAPNEL_COMPAT_ACTIVATION(softshrink, Softshrink)
#undef GRAPNEL_COMPAT_ACTIVATION
using ThresholdFuncOptions = ThresholdOptions;
inline Tensor threshold(Tensor input, const ThresholdFuncOptions& options) {
  return ThresholdImpl(options).forward(input);
}
struct RReLUFuncOptions {
  GRAPNEL_ARG(double, lower) = 1.0 / 8;
  GRAPNEL_ARG(double, upper) = 1.0 / 3;
  GRAPNEL_ARG(bool, training) = false;
  GRAPNEL_ARG(bool, inplace) = false;
};
inline Tensor rrelu(Tensor input, const RReLUFuncOptions& options = {}) {
  return grapnel::nn::maybe_in_place(options.inplace(), input, [&](const Tensor& x) {
    return grapnel::rrelu(x, options.lower(), options.upper(), options.training());
  });
}
inline Tensor prelu(const Tensor& input, const Tensor& weight) {
  return grapnel::prelu(input, weight);
}
using GLUFuncOptions = GLUOptions;
inline Tensor glu(const Tensor& input, const GLUFuncOptions& options = {}) {
  return GLUImpl(options).forward(input);
}

using SoftplusFuncOptions = SoftplusOptions;
inline Tensor softplus(const Tensor& input, const SoftplusFuncOptions& options = {}) {
  return grapnel::softplus(input, options.beta(), options.threshold());
}
using GELUFuncOptions = GELUOptions;
inline Tensor gelu(const Tensor& input, const GELUFuncOptions& options = {}) {
  return grapnel::gelu(input, options.approximate());
}

/// Takes a plain number, too: softmax(x, 1).
using SoftmaxFuncOptions = SoftmaxOptions;
using LogSoftmaxFuncOptions = LogSoftmaxOptions;
inline Tensor softmax(const Tensor& input, const SoftmaxFuncOptions& options) {
  return input.softmax(options.dim());
}
inline Tensor log_softmax(const Tensor& input, const LogSoftmaxFuncOptions& options) {
  return input.log_softmax(options.dim());
}

using SoftminFuncOptions = SoftmaxOptions;
inline Tensor softmin(const Tensor& input, const SoftminFuncOptions& options) {
  return (-input).softmax(options.dim());
}
struct GumbelSoftmaxFuncOptions {
  GRAPNEL_ARG(double, tau) = 1;
  GRAPNEL_ARG(bool, hard) = false;
  GRAPNEL_ARG(int64_t, dim) = -1;
};
/// Samples of a distribution over classes that gradients flow through; `hard` ones are one-hot and
/// have the gradient of the soft ones.
inline Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxFuncOptions& options = {}) {
  Tensor noise = grapnel::empty_like(logits.detach());
  noise.exponential_();
  const Tensor soft = ((logits - noise.log()) / options.tau()).softmax(options.dim());
  if (!options.hard()) return soft;
  const Tensor picked = soft.argmax(options.dim(), /*keepdim=*/true);
  const Tensor hard = grapnel::zeros_like(soft.detach()).scatter(options.dim(), picked, 1.0);
  return hard - soft.detach() + soft;
}

struct DropoutFuncOptions {
  GRAPNEL_ARG(double, p) = 0.5;
  GRAPNEL_ARG(bool, training) = true;
  GRAPNEL_ARG(bool, inplace) = false;
};
using Dropout2dFuncOptions = DropoutFuncOptions;
using Dropout3dFuncOptions = DropoutFuncOptions;
struct AlphaDropoutFuncOptions {
  GRAPNEL_ARG(double, p) = 0.5;
  GRAPNEL_ARG(bool, training) = false;
  GRAPNEL_ARG(bool, inplace) = false;
};
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;
#define GRAPNEL_COMPAT_DROPOUT(function, Name, grapnels)                        \
  inline Tensor function(Tensor input, const Name##FuncOptions& options = {}) { \
    const Tensor out = grapnels(input, options.p(), options.training());        \
    return options.inplace() && options.training() ? input.copy_(out) : out;    \
  }
GRAPNEL_COMPAT_DROPOUT(dropout, Dropout, grapnel::dropout)
GRAPNEL_COMPAT_DROPOUT(dropout2d, Dropout2d, grapnel::nn::functional::feature_dropout)
GRAPNEL_COMPAT_DROPOUT(dropout3d, Dropout3d, grapnel::nn::functional::feature_dropout)
GRAPNEL_COMPAT_DROPOUT(alpha_dropout, AlphaDropout, grapnel::nn::functional::alpha_dropout)
GRAPNEL_COMPAT_DROPOUT(feature_alpha_dropout, FeatureAlphaDropout,
                       grapnel::nn::functional::feature_alpha_dropout)
#undef GRAPNEL_COMPAT_DROPOUT

// --- losses ---
using MSELossFuncOptions = MSELossOptions;
using L1LossFuncOptions = L1LossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using KLDivFuncOptions = KLDivLossOptions;

inline Tensor mse_loss(const Tensor& input, const Tensor& target,
                       const MSELossFuncOptions& options = {}) {
  return grapnel::mse_loss(input, target, options.reduction());
}
inline Tensor l1_loss(const Tensor& input, const Tensor& target,
                      const L1LossFuncOptions& options = {}) {
  return grapnel::l1_loss(input, target, options.reduction());
}
inline Tensor nll_loss(const Tensor& input, const Tensor& target,
                       const NLLLossFuncOptions& options = {}) {
  return grapnel::nll_loss(input, target, options.weight(), options.reduction(),
                           options.ignore_index());
}
inline Tensor cross_entropy(const Tensor& input, const Tensor& target,
                            const CrossEntropyFuncOptions& options = {}) {
  return grapnel::cross_entropy(input, target, options.weight(), options.reduction(),
                                options.ignore_index(), options.label_smoothing());
}
inline Tensor binary_cross_entropy_with_logits(
    const Tensor& input, const Tensor& target,
    const BinaryCrossEntropyWithLogitsFuncOptions& options = {}) {
  return grapnel::binary_cross_entropy_with_logits(input, target, options.weight(),
                                                   options.pos_weight(), options.reduction());
}
inline Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                                   const BinaryCrossEntropyFuncOptions& options = {}) {
  return grapnel::nn::functional::binary_cross_entropy(input, target, options.weight(),
                                                       options.reduction());
}

inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                             const SmoothL1LossFuncOptions& options = {}) {
  return grapnel::nn::functional::smooth_l1_loss(input, target, options.reduction(),
                                                 options.beta());
}
inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                             const SmoothL1LossFuncOptions& options, double beta) {
  return grapnel::nn::functional::smooth_l1_loss(input, target, options.reduction(), beta);
}
inline Tensor huber_loss(const Tensor& input, const Tensor& target,
                         const HuberLossFuncOptions& options = {}) {
  return grapnel::nn::functional::huber_loss(input, target, options.reduction(), options.delta());
}
inline Tensor kl_div(const Tensor& input, const Tensor& target,
                     const KLDivFuncOptions& options = {}) {
  return grapnel::nn::functional::kl_div(input, target, options.reduction(), options.log_target());
}

// --- layers ---
inline Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias = {}) {
  return grapnel::linear(input, weight, bias);
}
inline Tensor one_hot(const Tensor& indices, int64_t num_classes = -1) {
  return grapnel::one_hot(indices, num_classes);
}

/// One number for all dimensions, or a list: `.stride(2)`, `.stride({2, 1})`.
class Sizes {
 public:
  Sizes(int64_t all) : values_{all} {}
  Sizes(std::initializer_list<int64_t> each) : values_(each) {}
  Sizes(std::vector<int64_t> each) : values_(std::move(each)) {}
  operator grapnel::IntArrayRef() const { return values_; }

 private:
  std::vector<int64_t> values_;
};

struct ConvFuncOptions {
  GRAPNEL_ARG(Tensor, bias);
  GRAPNEL_ARG(Sizes, stride) = 1;
  GRAPNEL_ARG(Sizes, padding) = 0;
  GRAPNEL_ARG(Sizes, dilation) = 1;
  GRAPNEL_ARG(int64_t, groups) = 1;
};
using Conv1dFuncOptions = ConvFuncOptions;
using Conv2dFuncOptions = ConvFuncOptions;
inline Tensor conv1d(const Tensor& input, const Tensor& weight,
                     const Conv1dFuncOptions& options = {}) {
  return grapnel::conv1d(input, weight, options.bias(), options.stride(), options.padding(),
                         options.dilation(), options.groups());
}
inline Tensor conv2d(const Tensor& input, const Tensor& weight,
                     const Conv2dFuncOptions& options = {}) {
  return grapnel::conv2d(input, weight, options.bias(), options.stride(), options.padding(),
                         options.dilation(), options.groups());
}

struct ConvTransposeFuncOptions {
  GRAPNEL_ARG(Tensor, bias);
  GRAPNEL_ARG(Sizes, stride) = 1;
  GRAPNEL_ARG(Sizes, padding) = 0;
  GRAPNEL_ARG(Sizes, output_padding) = 0;
  GRAPNEL_ARG(int64_t, groups) = 1;
  GRAPNEL_ARG(Sizes, dilation) = 1;
};
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions;
inline Tensor conv_transpose1d(const Tensor& input, const Tensor& weight,
                               const ConvTranspose1dFuncOptions& options = {}) {
  return grapnel::conv_transpose1d(input, weight, options.bias(), options.stride(),
                                   options.padding(), options.output_padding(), options.groups(),
                                   options.dilation());
}
inline Tensor conv_transpose2d(const Tensor& input, const Tensor& weight,
                               const ConvTranspose2dFuncOptions& options = {}) {
  return grapnel::conv_transpose2d(input, weight, options.bias(), options.stride(),
                                   options.padding(), options.output_padding(), options.groups(),
                                   options.dilation());
}

/// What a padding is made of, as torch::kConstant and the names of padded convolutions say it.
class PadFuncMode {
 public:
  PadFuncMode(grapnel::PadMode mode) : mode_(mode) {}
  PadFuncMode(grapnel::nn::PaddingMode mode) : mode_(static_cast<grapnel::PadMode>(mode)) {}
  operator grapnel::PadMode() const { return mode_; }

 private:
  static_assert(static_cast<int>(grapnel::PadMode::circular) ==
                static_cast<int>(grapnel::nn::PaddingMode::circular));
  grapnel::PadMode mode_;
};
struct PadFuncOptions {
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}
  GRAPNEL_ARG(std::vector<int64_t>, pad);
  GRAPNEL_ARG(PadFuncMode, mode) = grapnel::PadMode::constant;
  GRAPNEL_ARG(double, value) = 0;
};
inline Tensor pad(const Tensor& input, const PadFuncOptions& options) {
  return grapnel::pad(input, options.pad(), options.mode(), options.value());
}

struct InterpolateFuncOptions : UpsampleOptions {
  // The setters of UpsampleOptions, which would lose what is added here.
  InterpolateFuncOptions& size(std::optional<std::vector<int64_t>> value) {
    UpsampleOptions::size(std::move(value));
    return *this;
  }
  InterpolateFuncOptions& scale_factor(std::optional<std::vector<double>> value) {
    UpsampleOptions::scale_factor(std::move(value));
    return *this;
  }
  InterpolateFuncOptions& mode(grapnel::Interpolation value) {
    UpsampleOptions::mode(value);
    return *this;
  }
  InterpolateFuncOptions& align_corners(std::optional<bool> value) {
    UpsampleOptions::align_corners(value);
    return *this;
  }
  GRAPNEL_ARG(std::optional<bool>, recompute_scale_factor);
};
inline Tensor interpolate(const Tensor& input, const InterpolateFuncOptions& options = {}) {
  return grapnel::nn::functional::upsample(input, options,
                                           options.recompute_scale_factor().value_or(false));
}
using PixelShuffleFuncOptions = PixelShuffleOptions;
inline Tensor pixel_shuffle(const Tensor& input, const PixelShuffleFuncOptions& options) {
  return grapnel::pixel_shuffle(input, options.upscale_factor());
}
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;
inline Tensor pixel_unshuffle(const Tensor& input, const PixelUnshuffleFuncOptions& options) {
  return grapnel::pixel_unshuffle(input, options.downscale_factor());
}

using CosineSimilarityFuncOptions = CosineSimilarityOptions;
inline Tensor cosine_similarity(const Tensor& x1, const Tensor& x2,
                                const CosineSimilarityFuncOptions& options = {}) {
  return grapnel::cosine_similarity(x1, x2, options.dim(), options.eps());
}
using PairwiseDistanceFuncOptions = PairwiseDistanceOptions;
inline Tensor pairwise_distance(const Tensor& x1, const Tensor& x2,
                                const PairwiseDistanceFuncOptions& options = {}) {
  return grapnel::pairwise_distance(x1, x2, options.p(), options.eps(), options.keepdim());
}

// Pooling has the options of the layers.
#define GRAPNEL_COMPAT_POOL(function, Name)                                       \
  using Name##FuncOptions = Name##Options;                                        \
  inline Tensor function(const Tensor& input, const Name##FuncOptions& options) { \
    return Name##Impl(options).forward(input);                                    \
  }
GRAPNEL_COMPAT_POOL(max_pool1d, MaxPool1d)
GRAPNEL_COMPAT_POOL(max_pool2d, MaxPool2d)
GRAPNEL_COMPAT_POOL(avg_pool1d, AvgPool1d)
GRAPNEL_COMPAT_POOL(avg_pool2d, AvgPool2d)
GRAPNEL_COMPAT_POOL(adaptive_avg_pool1d, AdaptiveAvgPool1d)
GRAPNEL_COMPAT_POOL(adaptive_avg_pool2d, AdaptiveAvgPool2d)
GRAPNEL_COMPAT_POOL(adaptive_max_pool1d, AdaptiveMaxPool1d)
GRAPNEL_COMPAT_POOL(adaptive_max_pool2d, AdaptiveMaxPool2d)
#undef GRAPNEL_COMPAT_POOL

struct EmbeddingFuncOptions {
  GRAPNEL_ARG(std::optional<int64_t>, padding_idx);
  GRAPNEL_ARG(std::optional<double>, max_norm);
  GRAPNEL_ARG(double, norm_type) = 2;
};
inline Tensor embedding(const Tensor& input, const Tensor& weight,
                        const EmbeddingFuncOptions& options = {}) {
  if (options.max_norm())
    grapnel::nn::functional::embedding_renorm_(weight, input, *options.max_norm(),
                                               options.norm_type());
  const int64_t padding = options.padding_idx().value_or(-1);
  return grapnel::embedding(
      weight, input, options.padding_idx() && padding < 0 ? padding + weight.size(0) : padding);
}

struct LayerNormFuncOptions {
  LayerNormFuncOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  GRAPNEL_ARG(std::vector<int64_t>, normalized_shape);
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(Tensor, bias);
  GRAPNEL_ARG(double, eps) = 1e-5;
};
inline Tensor layer_norm(const Tensor& input, const LayerNormFuncOptions& options) {
  return grapnel::layer_norm(input, options.normalized_shape(), options.weight(), options.bias(),
                             options.eps());
}

struct GroupNormFuncOptions {
  GroupNormFuncOptions(int64_t num_groups) : num_groups_(num_groups) {}
  GRAPNEL_ARG(int64_t, num_groups);
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(Tensor, bias);
  GRAPNEL_ARG(double, eps) = 1e-5;
};
inline Tensor group_norm(const Tensor& input, const GroupNormFuncOptions& options) {
  return grapnel::nn::functional::group_norm(input, options.num_groups(), options.weight(),
                                             options.bias(), options.eps());
}
struct BatchNormFuncOptions {
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(Tensor, bias);
  GRAPNEL_ARG(bool, training) = false;
  GRAPNEL_ARG(double, momentum) = 0.1;
  GRAPNEL_ARG(double, eps) = 1e-5;
};
inline Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormFuncOptions& options = {}) {
  return grapnel::batch_norm(input, options.weight(), options.bias(), running_mean, running_var,
                             options.training(), options.momentum(), options.eps());
}
struct InstanceNormFuncOptions {
  GRAPNEL_ARG(Tensor, running_mean);
  GRAPNEL_ARG(Tensor, running_var);
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(Tensor, bias);
  GRAPNEL_ARG(bool, use_input_stats) = true;
  GRAPNEL_ARG(double, momentum) = 0.1;
  GRAPNEL_ARG(double, eps) = 1e-5;
};
inline Tensor instance_norm(const Tensor& input, const InstanceNormFuncOptions& options = {}) {
  return grapnel::nn::functional::instance_norm(
      input, options.running_mean(), options.running_var(), options.weight(), options.bias(),
      options.use_input_stats(), options.momentum(), options.eps());
}
struct NormalizeFuncOptions {
  GRAPNEL_ARG(double, p) = 2;
  GRAPNEL_ARG(int64_t, dim) = 1;
  GRAPNEL_ARG(double, eps) = 1e-12;
};
inline Tensor normalize(const Tensor& input, const NormalizeFuncOptions& options = {}) {
  return input /
         input.norm(options.p(), {options.dim()}, /*keepdim=*/true).clamp_min(options.eps());
}

}  // namespace functional
}  // namespace torch::nn
