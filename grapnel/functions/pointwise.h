/// More pointwise functions, made of those in functions.h: activations, and numbers put right.
#pragma once

#include <optional>

#include "grapnel/functions/functions.h"

namespace grapnel {

/// x limited to [min_val, max_val]. Unlike clamp's, its gradient is 0 at the bounds, too, as
/// PyTorch's is for this function.
Tensor hardtanh(const Tensor& x, const Scalar& min_val = -1, const Scalar& max_val = 1);
/// x limited to [0, 6].
Tensor relu6(const Tensor& x);
/// Scaled so that activations keep mean 0 and variance 1 from layer to layer.
Tensor selu(const Tensor& x);
/// x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere.
Tensor celu(const Tensor& x, const Scalar& alpha = 1);
/// x * tanh(softplus(x))
Tensor mish(const Tensor& x);
/// relu6(x + 3) / 6
Tensor hardsigmoid(const Tensor& x);
/// x * relu6(x + 3) / 6
Tensor hardswish(const Tensor& x);
/// x, but 0 in [-lambd, lambd].
Tensor hardshrink(const Tensor& x, const Scalar& lambd = 0.5);
/// x moved towards 0 by lambd, and 0 in [-lambd, lambd].
Tensor softshrink(const Tensor& x, const Scalar& lambd = 0.5);
/// x - tanh(x)
Tensor tanhshrink(const Tensor& x);
/// x / (1 + |x|)
Tensor softsign(const Tensor& x);
/// x above `threshold`, `value` elsewhere.
Tensor threshold(const Tensor& x, const Scalar& threshold, const Scalar& value);
/// The first half along a dimension times the sigmoid of the second.
Tensor glu(const Tensor& x, int64_t dim = -1);
/// x where it is positive, weight * x elsewhere; one weight, or one for each channel (dimension 1).
Tensor prelu(const Tensor& x, const Tensor& weight);
/// x where it is positive, elsewhere x times a slope: drawn from [lower, upper) for each element in
/// training, and their mean otherwise.
Tensor rrelu(const Tensor& x, const Scalar& lower = 1.0 / 8, const Scalar& upper = 1.0 / 3,
             bool training = false);
/// log(x / (1 - x)), of x limited to [eps, 1 - eps].
Tensor logit(const Tensor& x, std::optional<double> eps = {});
/// x with numbers in the place of NaN and infinities; those of infinities are the largest that the
/// type holds unless told otherwise.
Tensor nan_to_num(const Tensor& x, std::optional<double> nan = {},
                  std::optional<double> posinf = {}, std::optional<double> neginf = {});
/// Whether |a - b| <= atol + rtol * |b|, element by element.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);

}  // namespace grapnel
