/// Namespace torch::nn::functional: functions of tensors with LibTorch's options structs.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "grapnel/base/arg.h"
#include "grapnel/compat/at.h"

namespace torch {
/// How losses are told to reduce in options: `.reduction(torch::kSum)`.
inline constexpr grapnel::Reduce kNone = grapnel::Reduce::none;
inline constexpr grapnel::Reduce kMean = grapnel::Reduce::mean;
inline constexpr grapnel::Reduce kSum = grapnel::Reduce::sum;
}  // namespace torch

namespace torch::nn {

using grapnel::Reduce;
using grapnel::Tensor;

using namespace grapnel::nn;

namespace functional {

// --- activations ---
using ReLUFuncOptions = ReLUOptions;
inline Tensor relu(Tensor input, const ReLUFuncOptions& options = {}) {
  return options.inplace() ? input.relu_() : input.relu();
}
inline Tensor sigmoid(const Tensor& input) { return input.sigmoid(); }
inline Tensor tanh(const Tensor& input) { return input.tanh(); }
inline Tensor silu(const Tensor& input) { return input.silu(); }
inline Tensor mish(const Tensor& input) { return MishImpl().forward(input); }
inline Tensor selu(const Tensor& input) { return SELUImpl().forward(input); }
inline Tensor relu6(const Tensor& input) { return ReLU6Impl().forward(input); }
inline Tensor softsign(const Tensor& input) { return SoftsignImpl().forward(input); }
inline Tensor logsigmoid(const Tensor& input) { return LogSigmoidImpl().forward(input); }
using HardtanhFuncOptions = HardtanhOptions;
inline Tensor hardtanh(const Tensor& input, const HardtanhFuncOptions& options = {}) {
  return HardtanhImpl(options).forward(input);
}
using GLUFuncOptions = GLUOptions;
inline Tensor glu(const Tensor& input, const GLUFuncOptions& options = {}) {
  return GLUImpl(options).forward(input);
}

using LeakyReLUFuncOptions = LeakyReLUOptions;
inline Tensor leaky_relu(const Tensor& input, const LeakyReLUFuncOptions& options = {}) {
  return grapnel::leaky_relu(input, options.negative_slope());
}
using ELUFuncOptions = ELUOptions;
inline Tensor elu(const Tensor& input, const ELUFuncOptions& options = {}) {
  return grapnel::elu(input, options.alpha());
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

struct DropoutFuncOptions {
  GRAPNEL_ARG(double, p) = 0.5;
  GRAPNEL_ARG(bool, training) = true;
  GRAPNEL_ARG(bool, inplace) = false;
};
inline Tensor dropout(Tensor input, const DropoutFuncOptions& options = {}) {
  const Tensor out = grapnel::dropout(input, options.p(), options.training());
  return options.inplace() ? input.copy_(out) : out;
}

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
