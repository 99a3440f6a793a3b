/// Modules without parameters (PReLU aside): activations, Softmax, Dropout.
#pragma once

#include <string>

#include "grapnel/base/arg.h"
#include "grapnel/functions/functions.h"
#include "grapnel/functions/one_call.h"
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
GRAPNEL_ACTIVATION(Mish, input* softplus(input).tanh());
/// log(sigmoid(x)), computed without overflow.
GRAPNEL_ACTIVATION(LogSigmoid, log_sigmoid(input));
/// x / (1 + |x|)
GRAPNEL_ACTIVATION(Softsign, input / (1 + input.abs()));
/// x limited to [low, high]. Unlike clamp's, its gradient is 0 at the bounds, too, as PyTorch's is for
/// these layers.
inline Tensor limited(const Tensor& x, double low, double high) {
  return where((x <= low) | (x >= high), x.detach().clamp(low, high), x);
}
/// x limited to [0, 6].
GRAPNEL_ACTIVATION(ReLU6, limited(input, 0, 6));
/// Scaled so that activations keep mean 0 and variance 1 from layer to layer.
GRAPNEL_ACTIVATION(SELU, 1.0507009873554804934193349852946 *
                             elu(input, 1.6732632423543772848170429916717));
#undef GRAPNEL_ACTIVATION

// --- with options ---

struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}
  GRAPNEL_ARG(bool, inplace);
};
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

struct LeakyReLUOptions {
  GRAPNEL_ARG(double, negative_slope) = 0.01;
};
/// x where it is positive, negative_slope * x elsewhere.
class LeakyReLUImpl : public Cloneable<LeakyReLUImpl> {
 public:
  explicit LeakyReLUImpl(const LeakyReLUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::LeakyReLU(negative_slope=" << options.negative_slope() << ')';
  }
  Tensor forward(const Tensor& input) { return leaky_relu(input, options.negative_slope()); }

  LeakyReLUOptions options;
};
GRAPNEL_MODULE(LeakyReLU);

struct ELUOptions {
  GRAPNEL_ARG(double, alpha) = 1;
};
/// x where it is positive, alpha * (exp(x) - 1) elsewhere.
class ELUImpl : public Cloneable<ELUImpl> {
 public:
  explicit ELUImpl(const ELUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::ELU(alpha=" << options.alpha() << ')';
  }
  Tensor forward(const Tensor& input) { return elu(input, options.alpha()); }

  ELUOptions options;
};
GRAPNEL_MODULE(ELU);

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
    return limited(input, options.min_val(), options.max_val());
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

// --- dropout ---

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  GRAPNEL_ARG(double, p);
};
/// In training, zeroes each element with probability p and scales the others up; otherwise returns
/// its argument.
class DropoutImpl : public Cloneable<DropoutImpl> {
 public:
  explicit DropoutImpl(const DropoutOptions& options_ = {}) : options(options_) {
    check(options.p() >= 0 && options.p() <= 1, "Dropout: p must be between 0 and 1, got ",
          options.p(), ".");
  }
  explicit DropoutImpl(double p) : DropoutImpl(DropoutOptions(p)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::Dropout(p=" << options.p() << ')';
  }
  Tensor forward(const Tensor& input) { return dropout(input, options.p(), is_training()); }

  DropoutOptions options;
};
GRAPNEL_MODULE(Dropout);

}  // namespace grapnel::nn
