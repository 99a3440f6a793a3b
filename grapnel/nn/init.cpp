#include "grapnel/nn/init.h"

#include <cmath>

#include "grapnel/autograd/grad_mode.h"

namespace grapnel::nn::init {

Fans fans_of(const Tensor& weight) {
  check(weight.dim() >= 2, "init: fan-in and fan-out need a weight of at least 2 dimensions, got shape ", weight.shape(), ".");
  const int64_t field = weight.numel() == 0 ? 0 : weight.numel() / (weight.size(0) * weight.size(1));
  return {weight.size(1) * field, weight.size(0) * field};
}

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

namespace {
double kaiming_std(const Tensor& t, double a) {
  const double fan_in = static_cast<double>(fans_of(t).in);
  return fan_in == 0 ? 0 : std::sqrt(2.0 / (1 + a * a)) / std::sqrt(fan_in);
}
double xavier_std(const Tensor& t, double gain) {
  const Fans fans = fans_of(t);
  return fans.in + fans.out == 0 ? 0 : gain * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out));
}
}  // namespace

Tensor kaiming_uniform_(Tensor tensor, double a) {
  const double bound = std::sqrt(3.0) * kaiming_std(tensor, a);
  return uniform_(std::move(tensor), -bound, bound);
}
Tensor kaiming_normal_(Tensor tensor, double a) {
  const double std = kaiming_std(tensor, a);
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
