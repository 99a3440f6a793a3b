/// Modules without parameters: ReLU, Tanh, Sigmoid, GELU, Dropout.
#pragma once

#include <string>

#include "grapnel/base/arg.h"
#include "grapnel/nn/module_holder.h"
#include "grapnel/ops/functions.h"

namespace grapnel::nn {

struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}
  GRAPNEL_ARG(bool, inplace);
};
class ReLUImpl : public Cloneable<ReLUImpl> {
 public:
  explicit ReLUImpl(const ReLUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::ReLU(" << (options.inplace() ? "inplace=true" : "") << ')'; }
  Tensor forward(Tensor input) { return options.inplace() ? input.relu_() : input.relu(); }

  ReLUOptions options;
};
GRAPNEL_MODULE(ReLU);

class TanhImpl : public Cloneable<TanhImpl> {
 public:
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::Tanh()"; }
  Tensor forward(const Tensor& input) { return input.tanh(); }
};
GRAPNEL_MODULE(Tanh);

class SigmoidImpl : public Cloneable<SigmoidImpl> {
 public:
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::Sigmoid()"; }
  Tensor forward(const Tensor& input) { return input.sigmoid(); }
};
GRAPNEL_MODULE(Sigmoid);

struct GELUOptions {
  /// "none" or "tanh".
  GRAPNEL_ARG(std::string, approximate) = "none";
};
class GELUImpl : public Cloneable<GELUImpl> {
 public:
  explicit GELUImpl(const GELUOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::GELU()"; }
  Tensor forward(const Tensor& input) { return gelu(input, options.approximate()); }

  GELUOptions options;
};
GRAPNEL_MODULE(GELU);

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  GRAPNEL_ARG(double, p);
};
/// In training, zeroes each element with probability p and scales the others up; otherwise returns its argument.
class DropoutImpl : public Cloneable<DropoutImpl> {
 public:
  explicit DropoutImpl(const DropoutOptions& options_ = {}) : options(options_) {
    check(options.p() >= 0 && options.p() <= 1, "Dropout: p must be between 0 and 1, got ", options.p(), ".");
  }
  explicit DropoutImpl(double p) : DropoutImpl(DropoutOptions(p)) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::Dropout(p=" << options.p() << ')'; }
  Tensor forward(const Tensor& input) { return dropout(input, options.p(), is_training()); }

  DropoutOptions options;
};
GRAPNEL_MODULE(Dropout);

}  // namespace grapnel::nn
