/// Namespace torch::nn: Grapnel's modules, initialisers and utilities under LibTorch's names.
#pragma once

#include "grapnel/base/arg.h"
#include "grapnel/compat/functional.h"

#define TORCH_MODULE(Name) GRAPNEL_MODULE(Name)
#define TORCH_MODULE_IMPL(Name, ImplType) GRAPNEL_MODULE_IMPL(Name, ImplType)
#define TORCH_ARG(Type, name) GRAPNEL_ARG(Type, name)
/// What is left out of a call takes the default that forward() declares, without being told again.
#define FORWARD_HAS_DEFAULT_ARGS(...)

namespace torch {
using grapnel::nn::FanMode;
using grapnel::nn::Nonlinearity;
/// For initialisers and for Upsample, which both have a `linear`.
struct LinearKind {
  constexpr operator Nonlinearity() const { return Nonlinearity::linear; }
  constexpr operator grapnel::Interpolation() const { return grapnel::Interpolation::linear; }
};
inline constexpr LinearKind kLinear;
inline constexpr auto kNearest = grapnel::Interpolation::nearest;
inline constexpr auto kNearestExact = grapnel::Interpolation::nearest_exact;
inline constexpr auto kBilinear = grapnel::Interpolation::bilinear;
inline constexpr auto kTrilinear = grapnel::Interpolation::trilinear;
/// For F::pad, beside kReflect, kReplicate and kCircular.
inline constexpr auto kConstant = grapnel::PadMode::constant;
inline constexpr auto kSigmoid = Nonlinearity::sigmoid;
inline constexpr auto kTanh = Nonlinearity::tanh;
inline constexpr auto kReLU = Nonlinearity::relu;
inline constexpr auto kLeakyReLU = Nonlinearity::leaky_relu;
/// For the activation of transformer layers.
inline constexpr auto kGELU = [](const grapnel::Tensor& x) { return grapnel::gelu(x); };
inline constexpr auto kSame = grapnel::nn::Padding::same;
inline constexpr auto kValid = grapnel::nn::Padding::valid;
inline constexpr auto kZeros = grapnel::nn::PaddingMode::zeros;
inline constexpr auto kReflect = grapnel::nn::PaddingMode::reflect;
inline constexpr auto kReplicate = grapnel::nn::PaddingMode::replicate;
inline constexpr auto kCircular = grapnel::nn::PaddingMode::circular;
/// For KLDivLoss, beside kSum, kMean and kNone.
inline constexpr auto kBatchMean = grapnel::nn::functional::KLReduce::batch_mean;
inline constexpr auto kFanIn = FanMode::in;
inline constexpr auto kFanOut = FanMode::out;
}  // namespace torch

namespace torch::nn {

namespace utils {

using grapnel::nn::utils::clip_grad_value_;
using grapnel::nn::utils::parameters_to_vector;
using grapnel::nn::utils::vector_to_parameters;

/// Returns the norm as a number, so it looks at it; grapnel::nn::utils::clip_grad_norm_ does not,
/// and compiles.
inline double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                              double norm_type = 2.0, bool error_if_nonfinite = false) {
  return grapnel::nn::utils::clip_grad_norm_(parameters, max_norm, {norm_type, error_if_nonfinite})
      .template item<double>();
}
inline double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2.0,
                              bool error_if_nonfinite = false) {
  return clip_grad_norm_(std::vector<Tensor>{parameter}, max_norm, norm_type, error_if_nonfinite);
}

}  // namespace utils
}  // namespace torch::nn
