#include "grapnel/nn/init.h"

#include <algorithm>
#include <cmath>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::nn::init {

Fans fans_of(const Tensor& weight) {
  check(weight.dim() >= 2,
        "init: fan-in and fan-out need a weight of at least 2 dimensions, got shape ",
        weight.shape(), ".");
  const int64_t field =
      weight.numel() == 0 ? 0 : weight.numel() / (weight.size(0) * weight.size(1));
  return {weight.size(1) * field, weight.size(0) * field};
}

// --- simple fills ---

Tensor uniform_(Tensor tensor, double low, double high) {
  NoGradGuard no_grad;
  return tensor.uniform_(low, high);
}
Tensor normal_(Tensor tensor, double mean, double std) {
  NoGradGuard no_grad;
  return tensor.normal_(mean, std);
}
Tensor constant_(Tensor tensor, Scalar value) {
  NoGradGuard no_grad;
  return tensor.fill_(value);
}
Tensor ones_(Tensor tensor) { return constant_(std::move(tensor), 1); }
Tensor zeros_(Tensor tensor) { return constant_(std::move(tensor), 0); }

Tensor trunc_normal_(Tensor tensor, double mean, double std, double low, double high) {
  check_as<ValueError>(low < high && std >= 0,
                       "trunc_normal_: low must be below high and std not negative, got ", low,
                       ", ", high, " and ", std, ".");
  // Drawing again is quick unless hardly anything falls inside; then a uniform draw is close enough
  // to what remains.
  const double reach = std::max({low - mean, mean - high, 0.0});
  if (std == 0 || reach > 4 * std) return uniform_(std::move(tensor), low, high);
  NoGradGuard no_grad;
  tensor.normal_(mean, std);
  for (;;) {
    const Tensor outside = logical_or(tensor<low, tensor> high);
    if (!outside.any().item<bool>()) return tensor;
    tensor.copy_(where(outside, empty_like(tensor).normal_(mean, std), tensor.detach()));
  }
}

Tensor eye_(Tensor matrix) {
  check(matrix.dim() == 2, "eye_: a matrix is needed, got shape ", matrix.shape(), ".");
  NoGradGuard no_grad;
  matrix.zero_();
  matrix.diagonal().fill_(1);
  return matrix;
}

Tensor dirac_(Tensor tensor) {
  check(tensor.dim() >= 3 && tensor.dim() <= 5,
        "dirac_: a weight [out, in, kernel...] of 3 to 5 dimensions is needed, got shape ",
        tensor.shape(), ".");
  NoGradGuard no_grad;
  tensor.zero_();
  Tensor middle = tensor;
  while (middle.dim() > 2) middle = middle.select(2, middle.size(2) / 2);
  middle.diagonal().fill_(1);
  return tensor;
}

Tensor orthogonal_(Tensor tensor, double gain) {
  check(tensor.dim() >= 2, "orthogonal_: at least 2 dimensions are needed, got shape ",
        tensor.shape(), ".");
  if (tensor.numel() == 0) return tensor;
  NoGradGuard no_grad;
  const int64_t rows = tensor.size(0), columns = tensor.numel() / rows,
                short_side = std::min(rows, columns);
  // Rows of `basis` are made orthogonal one after the other (Gram-Schmidt, twice for full
  // accuracy), in f64.
  const Tensor basis = randn({short_side, std::max(rows, columns)}, kFloat64);
  for (int64_t i = 0; i < short_side; ++i) {
    const Tensor row = basis[i];
    for (int pass = 0; pass < 2 && i > 0; ++pass) {
      const Tensor before = basis.narrow(0, 0, i);
      row.sub_(before.t().mv(before.mv(row)));
    }
    row.div_(row.norm());
  }
  const Tensor filled = (rows <= columns ? basis : basis.t()) * gain;
  return tensor.copy_(filled.reshape(tensor.shape()));
}

Tensor sparse_(Tensor tensor, double sparsity, double std) {
  check(tensor.dim() == 2, "sparse_: a matrix is needed, got shape ", tensor.shape(), ".");
  check_as<ValueError>(sparsity >= 0 && sparsity <= 1,
                       "sparse_: sparsity must be between 0 and 1, got ", sparsity, ".");
  NoGradGuard no_grad;
  tensor.normal_(0, std);
  const auto zeros =
      static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(tensor.size(0))));
  for (int64_t column = 0; column < tensor.size(1); ++column)
    for (const Tensor chosen = randperm(tensor.size(0)).narrow(0, 0, zeros);
         const Tensor& row : chosen.unbind())
      tensor.select(1, column).select(0, row.item<int64_t>()).fill_(0);
  return tensor;
}

// --- by variance ---

double calculate_gain(Nonlinearity f, double a) {
  switch (f) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: return 1;
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2 / (1 + a * a));
  }
  __builtin_unreachable();
}

namespace {
double kaiming_std(const Tensor& t, double a, FanMode mode, Nonlinearity f) {
  const Fans fans = fans_of(t);
  const auto fan = static_cast<double>(mode == FanMode::in ? fans.in : fans.out);
  return fan == 0 ? 0 : calculate_gain(f, a) / std::sqrt(fan);
}
double xavier_std(const Tensor& t, double gain) {
  const Fans fans = fans_of(t);
  return fans.in + fans.out == 0 ? 0
                                 : gain * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out));
}
}  // namespace

Tensor kaiming_uniform_(Tensor tensor, double a, FanMode mode, Nonlinearity f) {
  const double bound = std::sqrt(3.0) * kaiming_std(tensor, a, mode, f);
  return uniform_(std::move(tensor), -bound, bound);
}
Tensor kaiming_normal_(Tensor tensor, double a, FanMode mode, Nonlinearity f) {
  const double std = kaiming_std(tensor, a, mode, f);
  return normal_(std::move(tensor), 0, std);
}
Tensor xavier_uniform_(Tensor tensor, double gain) {
  const double bound = std::sqrt(3.0) * xavier_std(tensor, gain);
  return uniform_(std::move(tensor), -bound, bound);
}
Tensor xavier_normal_(Tensor tensor, double gain) {
  const double std = xavier_std(tensor, gain);
  return normal_(std::move(tensor), 0, std);
}

}  // namespace grapnel::nn::init
