/// Namespace torch::nn: Grapnel's modules, loss modules, and LibTorch's further initialisers and utilities.
#pragma once

#include <cmath>
#include <limits>

#include "grapnel/base/arg.h"
#include "grapnel/compat/functional.h"

#define TORCH_MODULE(Name) GRAPNEL_MODULE(Name)
#define TORCH_MODULE_IMPL(Name, ImplType) GRAPNEL_MODULE_IMPL(Name, ImplType)
#define TORCH_ARG(Type, name) GRAPNEL_ARG(Type, name)

namespace torch {
/// Names of activations and fans for the initialisers.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu };
enum class FanMode { in, out };
inline constexpr auto kLinear = Nonlinearity::linear;
inline constexpr auto kSigmoid = Nonlinearity::sigmoid;
inline constexpr auto kTanh = Nonlinearity::tanh;
inline constexpr auto kReLU = Nonlinearity::relu;
inline constexpr auto kLeakyReLU = Nonlinearity::leaky_relu;
inline constexpr auto kFanIn = FanMode::in;
inline constexpr auto kFanOut = FanMode::out;
}  // namespace torch

namespace torch::nn {

using namespace grapnel::nn;

// --- losses as modules: torch::nn::MSELoss criterion; criterion(output, target) ------------------------------------------------
#define GRAPNEL_COMPAT_LOSS(Name, function)                                                        \
  class Name##Impl : public Cloneable<Name##Impl> {                                                \
   public:                                                                                         \
    explicit Name##Impl(const Name##Options& options_ = {}) : options(options_) {}                 \
    void reset() override {}                                                                       \
    void pretty_print(std::ostream& stream) const override { stream << "torch::nn::" #Name "()"; } \
    grapnel::Tensor forward(const grapnel::Tensor& input, const grapnel::Tensor& target) {         \
      return functional::function(input, target, options);                                         \
    }                                                                                              \
    Name##Options options;                                                                         \
  };                                                                                               \
  TORCH_MODULE(Name)
GRAPNEL_COMPAT_LOSS(MSELoss, mse_loss);
GRAPNEL_COMPAT_LOSS(L1Loss, l1_loss);
GRAPNEL_COMPAT_LOSS(NLLLoss, nll_loss);
GRAPNEL_COMPAT_LOSS(CrossEntropyLoss, cross_entropy);
GRAPNEL_COMPAT_LOSS(BCELoss, binary_cross_entropy);
GRAPNEL_COMPAT_LOSS(BCEWithLogitsLoss, binary_cross_entropy_with_logits);
#undef GRAPNEL_COMPAT_LOSS

namespace init {

using namespace grapnel::nn::init;

/// The factor by which an activation shrinks deviations; `a` is the slope of a leaky ReLU.
inline double calculate_gain(Nonlinearity f, double a = 0.01) {
  switch (f) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: return 1;
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2 / (1 + a * a));
  }
  __builtin_unreachable();
}
inline double kaiming_std(const Tensor& tensor, double a, FanMode mode, Nonlinearity f) {
  const Fans fans = fans_of(tensor);
  return calculate_gain(f, a) / std::sqrt(static_cast<double>(mode == FanMode::in ? fans.in : fans.out));
}
inline Tensor kaiming_normal_(Tensor tensor, double a = 0, FanMode mode = kFanIn,
                              Nonlinearity f = kLeakyReLU) {
  return normal_(tensor, 0, kaiming_std(tensor, a, mode, f));
}
inline Tensor kaiming_uniform_(Tensor tensor, double a = 0, FanMode mode = kFanIn,
                               Nonlinearity f = kLeakyReLU) {
  const double bound = std::sqrt(3.0) * kaiming_std(tensor, a, mode, f);
  return uniform_(tensor, -bound, bound);
}

}  // namespace init

namespace utils {

/// Scales all gradients so that their common norm is at most max_norm; returns the norm before. One synchronous step after
/// backward; a hook does the same during it.
inline double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                              bool error_if_nonfinite = false) {
  const grapnel::NoGradGuard no_grad;
  std::vector<Tensor> norms;
  const bool largest = norm_type == std::numeric_limits<double>::infinity();
  for (const Tensor& p : parameters)
    if (p.grad().defined()) norms.push_back(largest ? p.grad().abs().max() : p.grad().norm(norm_type));
  if (norms.empty()) return 0;
  const Tensor all = grapnel::stack(norms);
  const double total = (largest ? all.max() : all.norm(norm_type)).template item<double>();
  grapnel::check(!error_if_nonfinite || std::isfinite(total),
                 "clip_grad_norm_: the norm of the gradients is ", total, ".");
  const double scale = max_norm / (total + 1e-6);
  if (scale < 1)
    for (const Tensor& p : parameters)
      if (p.grad().defined()) p.mutable_grad().mul_(scale);
  return total;
}
inline double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2.0,
                              bool error_if_nonfinite = false) {
  return clip_grad_norm_(std::vector<Tensor>{parameter}, max_norm, norm_type, error_if_nonfinite);
}
inline void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  const grapnel::NoGradGuard no_grad;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) p.mutable_grad().clamp_(-clip_value, clip_value);
}
inline Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) flat.push_back(p.reshape({-1}));
  return grapnel::cat(flat);
}
inline void vector_to_parameters(const Tensor& vec, const std::vector<Tensor>& parameters) {
  int64_t begin = 0;
  for (const Tensor& p : parameters) {
    p.set_data(vec.detach().narrow(0, begin, p.numel()).view_as(p));
    begin += p.numel();
  }
}

}  // namespace utils
}  // namespace torch::nn
