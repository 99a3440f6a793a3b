#include "grapnel/nn/linear.h"

#include <cmath>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/init.h"

namespace grapnel::nn {

LinearImpl::LinearImpl(const LinearOptions& options_) : options(options_) {
  check(options.in_features() > 0 && options.out_features() > 0,
        "Linear: in_features and out_features must be positive, got ", options.in_features(),
        " and ", options.out_features(), ".");
  LinearImpl::reset();
}

void LinearImpl::reset() {
  weight = register_parameter("weight", empty({options.out_features(), options.in_features()}));
  bias = register_parameter("bias", options.bias() ? empty({options.out_features()}) : Tensor());
  reset_parameters();
}

void LinearImpl::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans_of(weight).in));
  init::uniform_(bias, -bound, bound);
}

void LinearImpl::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::Linear(in_features=" << options.in_features()
         << ", out_features=" << options.out_features()
         << ", bias=" << (options.bias() ? "true" : "false") << ')';
}

Tensor LinearImpl::forward(const Tensor& input) { return linear(input, weight, bias); }

void IdentityImpl::pretty_print(std::ostream& stream) const { stream << "grapnel::nn::Identity()"; }
void FlattenImpl::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::Flatten(start_dim=" << options.start_dim()
         << ", end_dim=" << options.end_dim() << ')';
}

}  // namespace grapnel::nn
