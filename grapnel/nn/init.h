/// Initialising parameters in place. Each function returns its tensor and is not recorded.
#pragma once

#include "grapnel/tensor/tensor.h"

namespace grapnel::nn {

/// What follows a layer, as far as its initial weights are concerned.
enum class Nonlinearity : uint8_t { linear, sigmoid, tanh, relu, leaky_relu };
/// Which side of a weight keeps its variance: forward values (in) or gradients (out).
enum class FanMode : uint8_t { in, out };

}  // namespace grapnel::nn

namespace grapnel::nn::init {

/// Uniform in [low, high).
Tensor uniform_(Tensor tensor, double low = 0, double high = 1);
/// Normal.
Tensor normal_(Tensor tensor, double mean = 0, double std = 1);
/// Normal, drawn again wherever it is outside [low, high].
Tensor trunc_normal_(Tensor tensor, double mean = 0, double std = 1, double low = -2,
                     double high = 2);
/// One value everywhere.
Tensor constant_(Tensor tensor, Scalar value);
/// Ones.
Tensor ones_(Tensor tensor);
/// Zeros.
Tensor zeros_(Tensor tensor);
/// Ones on the diagonal of a matrix.
Tensor eye_(Tensor matrix);
/// A convolution that passes as many channels through unchanged as it can. Weight [out, in,
/// kernel...].
Tensor dirac_(Tensor tensor);
/// Rows (or columns, if there are fewer) orthogonal and of length `gain`.
Tensor orthogonal_(Tensor tensor, double gain = 1);
/// In every column the share `sparsity` of elements is zero, the rest normal.
Tensor sparse_(Tensor tensor, double sparsity, double std = 0.01);

/// The variance of He et al. for a leaky ReLU of slope `a`; sqrt(5) gives the bounds 1 /
/// sqrt(fan_in) of Linear.
Tensor kaiming_uniform_(Tensor tensor, double a = 0, FanMode mode = FanMode::in,
                        Nonlinearity f = Nonlinearity::leaky_relu);
/// The same variance, normal.
Tensor kaiming_normal_(Tensor tensor, double a = 0, FanMode mode = FanMode::in,
                       Nonlinearity f = Nonlinearity::leaky_relu);
/// The variance of Glorot and Bengio.
Tensor xavier_uniform_(Tensor tensor, double gain = 1);
/// The same variance, normal.
Tensor xavier_normal_(Tensor tensor, double gain = 1);

/// The factor that makes up for what an activation takes from the deviation; `a` is the slope of a
/// leaky ReLU.
double calculate_gain(Nonlinearity f, double a = 0.01);

/// Inputs and outputs of one unit of a weight [out, in, ...].
struct Fans {
  int64_t in, out;
};
/// The fans of a weight.
Fans fans_of(const Tensor& weight);

}  // namespace grapnel::nn::init
