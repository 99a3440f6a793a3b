#include "grapnel/functions/pointwise.h"

#include <limits>

#include "grapnel/functions/factories.h"
#include "grapnel/ops/op.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

// --- activations ---

Tensor hardtanh(const Tensor& x, const Scalar& min_val, const Scalar& max_val) {
  GRAPNEL_CALL_SITE;
  check(min_val.to_double() <= max_val.to_double(), "hardtanh: min_val ", min_val,
        " is larger than max_val ", max_val, ".");
  return where((x <= min_val) | (x >= max_val), clamp(x.detach(), min_val, max_val), x);
}
Tensor relu6(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return hardtanh(x, 0, 6);
}
Tensor selu(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717);
}
Tensor celu(const Tensor& x, const Scalar& alpha) {
  GRAPNEL_CALL_SITE;
  check(alpha.to_double() != 0, "celu: alpha must not be 0.");
  return where(x > 0, x, alpha * elu(x / alpha));
}
Tensor mish(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return x * tanh(softplus(x));
}
Tensor hardsigmoid(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return relu6(x + 3) / 6;
}
Tensor hardswish(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return x * relu6(x + 3) / 6;
}
Tensor hardshrink(const Tensor& x, const Scalar& lambd) {
  GRAPNEL_CALL_SITE;
  return where(abs(x) <= lambd, 0, x);
}
Tensor softshrink(const Tensor& x, const Scalar& lambd) {
  GRAPNEL_CALL_SITE;
  check(lambd.to_double() >= 0, "softshrink: lambd must not be negative, got ", lambd, ".");
  return where(abs(x) <= lambd, 0, where(x > 0, x - lambd, x + lambd));  // NaN stays NaN
}
Tensor tanhshrink(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return x - tanh(x);
}
Tensor softsign(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return x / (1 + abs(x));
}
Tensor threshold(const Tensor& x, const Scalar& threshold, const Scalar& value) {
  GRAPNEL_CALL_SITE;
  return where(x <= threshold, value, x);
}
Tensor glu(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  check(x.dim() > 0 && x.size(dim) % 2 == 0, "glu: dimension ", dim,
        " must have an even size to be halved, x is ", x.shape(), ".");
  const int64_t half = x.size(dim) / 2;
  return x.narrow(dim, 0, half) * sigmoid(x.narrow(dim, half, half));
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  GRAPNEL_CALL_SITE;
  Tensor slope = weight;
  if (weight.numel() != 1) {
    check(x.dim() >= 2 && x.size(1) == weight.numel(), "prelu: there are ", weight.numel(),
          " weights, one per channel, but x is ", x.shape(), ".");
    Shape column = Shape::filled(static_cast<int>(x.dim()) - 1, 1);
    column[0] = weight.numel();
    slope = weight.reshape(column);
  }
  return where(x > 0, x, slope * x);
}
Tensor rrelu(const Tensor& x, const Scalar& lower, const Scalar& upper, bool training) {
  GRAPNEL_CALL_SITE;
  const double low = lower.to_double(), high = upper.to_double();
  check(low <= high, "rrelu: the lower slope ", lower, " is above the upper one, ", upper, ".");
  if (!training) return leaky_relu(x, (low + high) / 2);
  const Tensor slopes = empty_like(x.detach());
  slopes.uniform_(low, high);
  return where(x > 0, x, slopes * x);
}

// --- numbers put right ---

Tensor logit(const Tensor& x, std::optional<double> eps) {
  GRAPNEL_CALL_SITE;
  const Tensor p = eps ? clamp(x, *eps, 1 - *eps) : x;
  return log(p / (1 - p));
}

namespace {
double largest_of(DType type) {
  if (type == kFloat64) return std::numeric_limits<double>::max();
  if (type == kFloat16) return 65504;
  return type == kBFloat16 ? 0x1.fep127 : std::numeric_limits<float>::max();
}
}  // namespace

Tensor nan_to_num(const Tensor& x, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  GRAPNEL_CALL_SITE;
  if (!is_floating(x.dtype())) return x.clone();
  const double infinity = std::numeric_limits<double>::infinity(), most = largest_of(x.dtype());
  const Tensor below = where(x == -infinity, neginf.value_or(-most), x);
  const Tensor finite = where(x == infinity, posinf.value_or(most), below);
  return where(isnan(x), nan.value_or(0), finite);
}

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  GRAPNEL_CALL_SITE;
  check(a.dtype() == b.dtype(), "isclose: types differ, ", a.dtype(), " and ", b.dtype(), ".");
  if (!is_floating(a.dtype()))
    return isclose(a.to(kFloat64), b.to(kFloat64), rtol, atol, equal_nan);
  // Infinities are close to themselves only, which a difference does not say.
  const Tensor near = (a == b) | (isfinite(b) & (abs(a - b) <= atol + rtol * abs(b)));
  return equal_nan ? near | (isnan(a) & isnan(b)) : near;
}

Tensor Tensor::nan_to_num(std::optional<double> nan, std::optional<double> posinf,
                          std::optional<double> neginf) const {
  GRAPNEL_CALL_SITE;
  return grapnel::nan_to_num(*this, nan, posinf, neginf);
}
Tensor Tensor::isclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  GRAPNEL_CALL_SITE;
  return grapnel::isclose(*this, other, rtol, atol, equal_nan);
}

}  // namespace grapnel
