/// Namespace torch::nn::functional: functions of tensors with LibTorch's options structs.
#pragma once

#include <initializer_list>
#include <string>
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

// --- activations ----------------------------------------------------------------------------------------------------------------
struct ReLUFuncOptions {
  ReLUFuncOptions(bool inplace = false) : inplace_(inplace) {}
  GRAPNEL_ARG(bool, inplace);
};
inline Tensor relu(Tensor input, const ReLUFuncOptions& options = {}) {
  return options.inplace() ? input.relu_() : input.relu();
}
inline Tensor sigmoid(const Tensor& input) { return input.sigmoid(); }
inline Tensor tanh(const Tensor& input) { return input.tanh(); }
inline Tensor silu(const Tensor& input) { return input.silu(); }

struct LeakyReLUFuncOptions {
  GRAPNEL_ARG(double, negative_slope) = 0.01;
};
inline Tensor leaky_relu(const Tensor& input, const LeakyReLUFuncOptions& options = {}) {
  return grapnel::leaky_relu(input, options.negative_slope());
}
struct ELUFuncOptions {
  GRAPNEL_ARG(double, alpha) = 1;
};
inline Tensor elu(const Tensor& input, const ELUFuncOptions& options = {}) {
  return grapnel::elu(input, options.alpha());
}
struct SoftplusFuncOptions {
  GRAPNEL_ARG(double, beta) = 1;
  GRAPNEL_ARG(double, threshold) = 20;
};
inline Tensor softplus(const Tensor& input, const SoftplusFuncOptions& options = {}) {
  return grapnel::softplus(input, options.beta(), options.threshold());
}
struct GELUFuncOptions {
  GRAPNEL_ARG(std::string, approximate) = "none";
};
inline Tensor gelu(const Tensor& input, const GELUFuncOptions& options = {}) {
  return grapnel::gelu(input, options.approximate());
}

/// Takes a plain number, too: softmax(x, 1).
struct SoftmaxFuncOptions {
  SoftmaxFuncOptions(int64_t dim) : dim_(dim) {}
  GRAPNEL_ARG(int64_t, dim);
};
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
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

// --- losses -----------------------------------------------------------------------------------------------------------------------
using MSELossFuncOptions = MSELossOptions;
using L1LossFuncOptions = L1LossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;

inline Tensor mse_loss(const Tensor& input, const Tensor& target, const MSELossFuncOptions& options = {}) {
  return grapnel::mse_loss(input, target, options.reduction());
}
inline Tensor l1_loss(const Tensor& input, const Tensor& target, const L1LossFuncOptions& options = {}) {
  return grapnel::l1_loss(input, target, options.reduction());
}
inline Tensor nll_loss(const Tensor& input, const Tensor& target, const NLLLossFuncOptions& options = {}) {
  return grapnel::nll_loss(input, target, options.weight(), options.reduction(), options.ignore_index());
}
inline Tensor cross_entropy(const Tensor& input, const Tensor& target,
                            const CrossEntropyFuncOptions& options = {}) {
  return grapnel::cross_entropy(input, target, options.weight(), options.reduction(), options.ignore_index(),
                                options.label_smoothing());
}
inline Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                               const BinaryCrossEntropyWithLogitsFuncOptions& options = {}) {
  return grapnel::binary_cross_entropy_with_logits(input, target, options.weight(), options.pos_weight(),
                                                   options.reduction());
}
inline Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                                   const BinaryCrossEntropyFuncOptions& options = {}) {
  return grapnel::nn::functional::binary_cross_entropy(input, target, options.weight(), options.reduction());
}

// --- layers -------------------------------------------------------------------------------------------------------------------------
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
inline Tensor conv1d(const Tensor& input, const Tensor& weight, const Conv1dFuncOptions& options = {}) {
  return grapnel::conv1d(input, weight, options.bias(), options.stride(), options.padding(),
                         options.dilation(), options.groups());
}
inline Tensor conv2d(const Tensor& input, const Tensor& weight, const Conv2dFuncOptions& options = {}) {
  return grapnel::conv2d(input, weight, options.bias(), options.stride(), options.padding(),
                         options.dilation(), options.groups());
}

struct MaxPool2dFuncOptions {
  MaxPool2dFuncOptions(Sizes kernel_size) : kernel_size_(kernel_size), stride_(std::move(kernel_size)) {}
  GRAPNEL_ARG(Sizes, kernel_size);
  GRAPNEL_ARG(Sizes, stride);
  GRAPNEL_ARG(Sizes, padding) = 0;
  GRAPNEL_ARG(Sizes, dilation) = 1;
  GRAPNEL_ARG(bool, ceil_mode) = false;
};
inline Tensor max_pool2d(const Tensor& input, const MaxPool2dFuncOptions& options) {
  return grapnel::max_pool2d(input, options.kernel_size(), options.stride(), options.padding(),
                             options.dilation(), options.ceil_mode());
}
struct AvgPool2dFuncOptions {
  AvgPool2dFuncOptions(Sizes kernel_size) : kernel_size_(kernel_size), stride_(std::move(kernel_size)) {}
  GRAPNEL_ARG(Sizes, kernel_size);
  GRAPNEL_ARG(Sizes, stride);
  GRAPNEL_ARG(Sizes, padding) = 0;
  GRAPNEL_ARG(bool, ceil_mode) = false;
  GRAPNEL_ARG(bool, count_include_pad) = true;
};
inline Tensor avg_pool2d(const Tensor& input, const AvgPool2dFuncOptions& options) {
  return grapnel::avg_pool2d(input, options.kernel_size(), options.stride(), options.padding(),
                             options.ceil_mode(), options.count_include_pad());
}

struct EmbeddingFuncOptions {
  GRAPNEL_ARG(int64_t, padding_idx) = -1;
};
inline Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingFuncOptions& options = {}) {
  return grapnel::embedding(weight, input, options.padding_idx());
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

}  // namespace functional
}  // namespace torch::nn
