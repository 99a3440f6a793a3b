/// Initialising parameters in place. Each function returns its tensor and is not recorded.
#pragma once

#include "grapnel/tensor/tensor.h"

namespace grapnel::nn::init {

Tensor uniform_(Tensor tensor, double low = 0, double high = 1);
Tensor normal_(Tensor tensor, double mean = 0, double std = 1);
Tensor constant_(Tensor tensor, Scalar value);
Tensor ones_(Tensor tensor);
Tensor zeros_(Tensor tensor);
/// Uniform with the variance of He et al. for a leaky ReLU of slope `a`; sqrt(5) gives the bounds 1 / sqrt(fan_in) of Linear.
Tensor kaiming_uniform_(Tensor tensor, double a = 0);
Tensor kaiming_normal_(Tensor tensor, double a = 0);
/// Uniform with the variance of Glorot and Bengio.
Tensor xavier_uniform_(Tensor tensor, double gain = 1);
Tensor xavier_normal_(Tensor tensor, double gain = 1);

/// Inputs and outputs of one unit of a weight [out, in, ...].
struct Fans {
  int64_t in, out;
};
Fans fans_of(const Tensor& weight);

}  // namespace grapnel::nn::init
