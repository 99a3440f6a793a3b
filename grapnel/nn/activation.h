/// Modules without parameters (PReLU aside): activations, Softmax, Dropout.
#pragma once

#include <string>

#include "grapnel/base/arg.h"
#include "grapnel/functions/functions.h"
#include "grapnel/functions/one_call.h"
#include "grapnel/functions/pointwise.h"
#include "grapnel/nn/functional.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

// --- without options ---

#define GRAPNEL_ACTIVATION(Name, expression)                   \
  class Name##Impl : public Cloneable<Name##Impl> {            \
   public:                                                     \
    void reset() override {}                                   \
    void pretty_print(std::ostream& stream) const override {   \
      stream << "grapnel::nn::" #Name "()";                    \
    }                                                          \
    Tensor forward(const Tensor& input) { return expression; } \
  };                                                           \
  GRAPNEL_MODULE(Name)
/// tanh(x)
GRAPNEL_ACTIVATION(Tanh, input.tanh());
/// 1 / (1 + exp(-x))
GRAPNEL_ACTIVATION(Sigmoid, input.sigmoid());
/// x * sigmoid(x)
GRAPNEL_ACTIVATION(SiLU, input.silu());
/// x * tanh(softplus(x))
GRAPNEL_ACTIVATION(Mish, mish(input));
/// log(sigmoid(x)), computed without overflow.
GRAPNEL_ACTIVATION(LogSigmoid, log_sigmoid(input));
/// x / (1 + |x|)
GRAPNEL_ACTIVATION(Softsign, softsign(input));
/// x - tanh(x)
GRAPNEL_ACTIVATION(Tanhshrink, tanhshrink(input));
#undef GRAPNEL_ACTIVATION

// --- with options ---

/// fn(input), written over the input if `inplace`: it is computed from a copy then, so that the
/// gradient has the values from before.
template <class Fn>
Tensor maybe_in_place(bool inplace, Tensor input, Fn&& fn) {
  return inplace ? input.copy_(fn(input.clone())) : fn(input);
}

struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}
  GRAPNEL_ARG(bool, inplace);
};
using ReLU6Options = ReLUOptions;
using SELUOptions = ReLUOptions;
/// max(x, 0)
class ReLUImpl : public Cloneable<ReLUImpl> {
 public:
  explicit ReLUImpl(const ReLUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::ReLU(" << (options.inplace() ? "inplace=true" : "") << ')';
  }
  Tensor forward(Tensor input) { return options.inplace() ? input.relu_() : input.relu(); }

  ReLUOptions options;
};
GRAPNEL_MODULE(ReLU);
/// x limited to [0, 6].
class ReLU6Impl : public Cloneable<ReLU6Impl> {
 public:
  explicit ReLU6Impl(const ReLU6Options& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::ReLU6(" << (options.inplace() ? "inplace=true" : "") << ')';
  }
  Tensor forward(const Tensor& input) { return maybe_in_place(options.inplace(), input, relu6); }

  ReLU6Options options;
};
GRAPNEL_MODULE(ReLU6);
/// Scaled so that activations keep mean 0 and variance 1 from layer to layer.
class SELUImpl : public Cloneable<SELUImpl> {
 public:
  explicit SELUImpl(const SELUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::SELU(" << (options.inplace() ? "inplace=true" : "") << ')';
  }
  Tensor forward(const Tensor& input) { return maybe_in_place(options.inplace(), input, selu); }

  SELUOptions options;
};
GRAPNEL_MODULE(SELU);

struct LeakyReLUOptions {
  GRAPNEL_ARG(double, negative_slope) = 0.01;
  GRAPNEL_ARG(bool, inplace) = false;
};
/// x where it is positive, negative_slope * x elsewhere.
class LeakyReLUImpl : public Cloneable<LeakyReLUImpl> {
 public:
  explicit LeakyReLUImpl(const LeakyReLUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::LeakyReLU(negative_slope=" << options.negative_slope() << ')';
  }
  Tensor forward(const Tensor& input) {
    return maybe_in_place(options.inplace(), input, [this](const Tensor& x) {
      return leaky_relu(x, options.negative_slope());
    });
  }

  LeakyReLUOptions options;
};
GRAPNEL_MODULE(LeakyReLU);

struct ELUOptions {
  GRAPNEL_ARG(double, alpha) = 1;
  GRAPNEL_ARG(bool, inplace) = false;
};
/// x where it is positive, alpha * (exp(x) - 1) elsewhere.
class ELUImpl : public Cloneable<ELUImpl> {
 public:
  explicit ELUImpl(const ELUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::ELU(alpha=" << options.alpha() << ')';
  }
  Tensor forward(const Tensor& input) {
    return maybe_in_place(options.inplace(), input,
                          [this](const Tensor& x) { return elu(x, options.alpha()); });
  }

  ELUOptions options;
};
GRAPNEL_MODULE(ELU);

struct CELUOptions {
  GRAPNEL_ARG(double, alpha) = 1;
  GRAPNEL_ARG(bool, inplace) = false;
};
/// x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere.
class CELUImpl : public Cloneable<CELUImpl> {
 public:
  explicit CELUImpl(const CELUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::CELU(alpha=" << options.alpha() << ')';
  }
  Tensor forward(const Tensor& input) {
    return maybe_in_place(options.inplace(), input,
                          [this](const Tensor& x) { return celu(x, options.alpha()); });
  }

  CELUOptions options;
};
GRAPNEL_MODULE(CELU);

struct RReLUOptions {
  GRAPNEL_ARG(double, lower) = 1.0 / 8;
  GRAPNEL_ARG(double, upper) = 1.0 / 3;
  GRAPNEL_ARG(bool, inplace) = false;
};
/// x where it is positive, elsewhere x times a slope that is drawn in training.
class RReLUImpl : public Cloneable<RReLUImpl> {
 public:
  explicit RReLUImpl(const RReLUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::RReLU(lower=" << options.lower() << ", upper=" << options.upper()
           << ')';
  }
  Tensor forward(const Tensor& input) {
    return maybe_in_place(options.inplace(), input, [this](const Tensor& x) {
      return rrelu(x, options.lower(), options.upper(), is_training());
    });
  }

  RReLUOptions options;
};
GRAPNEL_MODULE(RReLU);

struct ThresholdOptions {
  ThresholdOptions(double threshold, double value) : threshold_(threshold), value_(value) {}
  GRAPNEL_ARG(double, threshold);
  GRAPNEL_ARG(double, value);
  GRAPNEL_ARG(bool, inplace) = false;
};
/// x above the threshold, `value` elsewhere.
class ThresholdImpl : public Cloneable<ThresholdImpl> {
 public:
  explicit ThresholdImpl(const ThresholdOptions& options_) : options(options_) {}
  ThresholdImpl(double threshold, double value)
      : ThresholdImpl(ThresholdOptions(threshold, value)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Threshold(threshold=" << options.threshold()
           << ", value=" << options.value() << ')';
  }
  Tensor forward(const Tensor& input) {
    return maybe_in_place(options.inplace(), input, [this](const Tensor& x) {
      return threshold(x, options.threshold(), options.value());
    });
  }

  ThresholdOptions options;
};
GRAPNEL_MODULE(Threshold);

struct HardshrinkOptions {
  HardshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}
  GRAPNEL_ARG(double, lambda);
};
using SoftshrinkOptions = HardshrinkOptions;
/// x, but 0 in [-lambda, lambda].
class HardshrinkImpl : public Cloneable<HardshrinkImpl> {
 public:
  explicit HardshrinkImpl(const HardshrinkOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Hardshrink(" << options.lambda() << ')';
  }
  Tensor forward(const Tensor& input) { return hardshrink(input, options.lambda()); }

  HardshrinkOptions options;
};
GRAPNEL_MODULE(Hardshrink);
/// x moved towards 0 by lambda, and 0 in [-lambda, lambda].
class SoftshrinkImpl : public Cloneable<SoftshrinkImpl> {
 public:
  explicit SoftshrinkImpl(const SoftshrinkOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Softshrink(" << options.lambda() << ')';
  }
  Tensor forward(const Tensor& input) { return softshrink(input, options.lambda()); }

  SoftshrinkOptions options;
};
GRAPNEL_MODULE(Softshrink);

struct SoftplusOptions {
  GRAPNEL_ARG(double, beta) = 1;
  GRAPNEL_ARG(double, threshold) = 20;
};
/// A smooth ReLU: log(1 + exp(beta * x)) / beta.
class SoftplusImpl : public Cloneable<SoftplusImpl> {
 public:
  explicit SoftplusImpl(const SoftplusOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Softplus(beta=" << options.beta()
           << ", threshold=" << options.threshold() << ')';
  }
  Tensor forward(const Tensor& input) {
    return softplus(input, options.beta(), options.threshold());
  }

  SoftplusOptions options;
};
GRAPNEL_MODULE(Softplus);

struct HardtanhOptions {
  GRAPNEL_ARG(double, min_val) = -1;
  GRAPNEL_ARG(double, max_val) = 1;
  GRAPNEL_ARG(bool, inplace) = false;
};
/// x limited to [min_val, max_val].
class HardtanhImpl : public Cloneable<HardtanhImpl> {
 public:
  explicit HardtanhImpl(const HardtanhOptions& options_ = {}) : options(options_) {
    check(options.min_val() < options.max_val(),
          "Hardtanh: min_val must be less than max_val, got ", options.min_val(), " and ",
          options.max_val(), ".");
  }
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Hardtanh(min_val=" << options.min_val()
           << ", max_val=" << options.max_val() << ')';
  }
  Tensor forward(const Tensor& input) {
    return maybe_in_place(options.inplace(), input, [this](const Tensor& x) {
      return hardtanh(x, options.min_val(), options.max_val());
    });
  }

  HardtanhOptions options;
};
GRAPNEL_MODULE(Hardtanh);

struct GELUOptions {
  /// "none" or "tanh".
  GRAPNEL_ARG(std::string, approximate) = "none";
};
/// x * Phi(x)
class GELUImpl : public Cloneable<GELUImpl> {
 public:
  explicit GELUImpl(const GELUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::GELU()"; }
  Tensor forward(const Tensor& input) { return gelu(input, options.approximate()); }

  GELUOptions options;
};
GRAPNEL_MODULE(GELU);

struct PReLUOptions {
  GRAPNEL_ARG(int64_t, num_parameters) = 1;
  GRAPNEL_ARG(double, init) = 0.25;
};
/// max(x, 0) + weight * min(x, 0), with one weight for all channels or one for each. Input [batch,
/// channels, ...].
class PReLUImpl : public Cloneable<PReLUImpl> {
 public:
  explicit PReLUImpl(const PReLUOptions& options_ = {}) : options(options_) { PReLUImpl::reset(); }
  void reset() override;
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::PReLU(num_parameters=" << options.num_parameters() << ')';
  }
  Tensor forward(const Tensor& input);

  PReLUOptions options;
  Tensor weight;
};
GRAPNEL_MODULE(PReLU);

struct GLUOptions {
  GLUOptions(int64_t dim = -1) : dim_(dim) {}
  GRAPNEL_ARG(int64_t, dim);
};
/// The first half along a dimension times the sigmoid of the second.
class GLUImpl : public Cloneable<GLUImpl> {
 public:
  explicit GLUImpl(const GLUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::GLU(dim=" << options.dim() << ')';
  }
  Tensor forward(const Tensor& input);

  GLUOptions options;
};
GRAPNEL_MODULE(GLU);

struct SoftmaxOptions {
  SoftmaxOptions(int64_t dim) : dim_(dim) {}
  GRAPNEL_ARG(int64_t, dim);
};
using LogSoftmaxOptions = SoftmaxOptions;
/// exp(x) divided by its sum along `dim`.
class SoftmaxImpl : public Cloneable<SoftmaxImpl> {
 public:
  explicit SoftmaxImpl(const SoftmaxOptions& options_) : options(options_) {}
  explicit SoftmaxImpl(int64_t dim) : SoftmaxImpl(SoftmaxOptions(dim)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Softmax(dim=" << options.dim() << ')';
  }
  Tensor forward(const Tensor& input) { return input.softmax(options.dim()); }

  SoftmaxOptions options;
};
GRAPNEL_MODULE(Softmax);
/// The logarithm of softmax along `dim`.
class LogSoftmaxImpl : public Cloneable<LogSoftmaxImpl> {
 public:
  explicit LogSoftmaxImpl(const LogSoftmaxOptions& options_) : options(options_) {}
  explicit LogSoftmaxImpl(int64_t dim) : LogSoftmaxImpl(LogSoftmaxOptions(dim)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::LogSoftmax(dim=" << options.dim() << ')';
  }
  Tensor forward(const Tensor& input) { return input.log_softmax(options.dim()); }

  LogSoftmaxOptions options;
};
GRAPNEL_MODULE(LogSoftmax);

/// softmax(-x) along `dim`.
class SoftminImpl : public Cloneable<SoftminImpl> {
 public:
  explicit SoftminImpl(const SoftmaxOptions& options_) : options(options_) {}
  explicit SoftminImpl(int64_t dim) : SoftminImpl(SoftmaxOptions(dim)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Softmin(dim=" << options.dim() << ')';
  }
  Tensor forward(const Tensor& input) { return (-input).softmax(options.dim()); }

  SoftmaxOptions options;
};
GRAPNEL_MODULE(Softmin);
/// Softmax over the channels of [batch, channels, height, width].
class Softmax2dImpl : public Cloneable<Softmax2dImpl> {
 public:
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::Softmax2d()"; }
  Tensor forward(const Tensor& input) {
    check(
        input.dim() == 3 || input.dim() == 4,
        "Softmax2d: the input must be [batch, channels, height, width] or one example of it, got ",
        "shape ", input.shape(), ".");
    return input.softmax(-3);
  }
};
GRAPNEL_MODULE(Softmax2d);

// --- dropout ---

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  GRAPNEL_ARG(double, p);
  GRAPNEL_ARG(bool, inplace) = false;
};
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;
// All have the same face; outside of training they return their argument.
#define GRAPNEL_DROPOUT(Name, function)                                                          \
  class Name##Impl : public Cloneable<Name##Impl> {                                              \
   public:                                                                                       \
    explicit Name##Impl(const DropoutOptions& options_ = {}) : options(options_) {               \
      check(options.p() >= 0 && options.p() <= 1, #Name ": p must be between 0 and 1, got ",     \
            options.p(), ".");                                                                   \
    }                                                                                            \
    explicit Name##Impl(double p) : Name##Impl(DropoutOptions(p)) {}                             \
    void reset() override {}                                                                     \
    void pretty_print(std::ostream& stream) const override {                                     \
      stream << "grapnel::nn::" #Name "(p=" << options.p() << ')';                               \
    }                                                                                            \
    Tensor forward(const Tensor& input) {                                                        \
      return maybe_in_place(options.inplace() && is_training(), input, [this](const Tensor& x) { \
        return function(x, options.p(), is_training());                                          \
      });                                                                                        \
    }                                                                                            \
                                                                                                 \
    DropoutOptions options;                                                                      \
  };                                                                                             \
  GRAPNEL_MODULE(Name)
/// In training, zeroes each element with probability p and scales the others up.
GRAPNEL_DROPOUT(Dropout, dropout);
/// Dropout of whole channels of [batch, channels, height, width].
GRAPNEL_DROPOUT(Dropout2d, functional::feature_dropout);
/// Dropout of whole channels of [batch, channels, depth, height, width].
GRAPNEL_DROPOUT(Dropout3d, functional::feature_dropout);
/// Dropout that keeps mean and variance behind a SELU.
GRAPNEL_DROPOUT(AlphaDropout, functional::alpha_dropout);
/// The same for whole channels.
GRAPNEL_DROPOUT(FeatureAlphaDropout, functional::feature_alpha_dropout);
#undef GRAPNEL_DROPOUT

}  // namespace grapnel::nn
