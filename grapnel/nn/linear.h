/// Linear, Identity and Flatten.
#pragma once

#include "grapnel/base/arg.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

struct LinearOptions {
  LinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  GRAPNEL_ARG(int64_t, in_features);
  GRAPNEL_ARG(int64_t, out_features);
  GRAPNEL_ARG(bool, bias) = true;
};

/// x @ weight^T + bias, with weight [out_features, in_features].
class LinearImpl : public Cloneable<LinearImpl> {
 public:
  LinearImpl(int64_t in_features, int64_t out_features)
      : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& options_);

  void reset() override;
  /// Both uniform in +-1 / sqrt(in_features), drawn from the default generator.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  LinearOptions options;
  Tensor weight, bias;
};
GRAPNEL_MODULE(Linear);

/// Returns its argument.
class IdentityImpl : public Cloneable<IdentityImpl> {
 public:
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input) { return input; }
};
GRAPNEL_MODULE(Identity);

struct FlattenOptions {
  GRAPNEL_ARG(int64_t, start_dim) = 1;
  GRAPNEL_ARG(int64_t, end_dim) = -1;
};
/// Joins the dimensions from start_dim to end_dim.
class FlattenImpl : public Cloneable<FlattenImpl> {
 public:
  explicit FlattenImpl(const FlattenOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input) {
    return input.flatten(options.start_dim(), options.end_dim());
  }

  FlattenOptions options;
};
GRAPNEL_MODULE(Flatten);

}  // namespace grapnel::nn
