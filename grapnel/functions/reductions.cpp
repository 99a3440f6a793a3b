/// Reductions as users call them: sum, mean, product, extremes, any and all, and what is composed
/// of them.
#include <cmath>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

template <class D>
Tensor reduce(const Tensor& x, IntArrayRef dims, bool keepdim) {
  return apply<D>(
      {.dims = wrap_dims(dims, static_cast<int>(x.dim()), D::name.data()), .keepdim = keepdim}, x);
}

Tensor in_type(const Tensor& x, std::optional<DType> dtype) {
  return dtype && *dtype != x.dtype() ? x.to(*dtype) : x;
}

/// An extreme of no values is nothing: neither number is below or above all others.
template <class D>
Tensor extreme(const Tensor& x, IntArrayRef dims, bool keepdim) {
  for (int64_t d : wrap_dims(dims, static_cast<int>(x.dim()), D::name.data()))
    check(x.size(d) != 0, D::name, ": dimension ", d, " of shape ", x.shape(),
          " holds no values, so there is no extreme.\nReduce over dimensions that are not empty.");
  return reduce<D>(x, dims, keepdim);
}

/// Computes several steps in f32 when x is narrower, and rounds once at the end.
template <class F>
Tensor widened(const Tensor& x, const F& steps) {
  const bool narrow = x.dtype() == kFloat16 || x.dtype() == kBFloat16;
  return narrow ? steps(x.to(kFloat32)).to(x.dtype()) : steps(x);
}

/// x^exponent for x >= 0, and 0 with gradient 0 at x = 0, where the slope of a root is infinite.
Tensor power_from_zero(const Tensor& x, double exponent) {
  const Tensor zero = x == 0;
  const Tensor safe = where(zero, 1.0, x);
  return where(zero, 0.0, exponent == 0.5 ? sqrt(safe) : pow(safe, exponent));
}

Tensor variance(const Tensor& x, IntArrayRef dims, bool unbiased, bool keepdim) {
  check(is_floating(x.dtype()), "var: the variance of ", x.dtype(),
        " values is not defined here.\nConvert first: x.to(kFloat32).");
  const Tensor offset = x - x.mean(dims, true);
  double count = unbiased ? -1 : 0, values = 1;
  for (int64_t d : wrap_dims(dims, static_cast<int>(x.dim()), "var"))
    values *= static_cast<double>(x.size(d));
  count += values;
  return (offset * offset).sum(dims, keepdim) / std::max(count, 0.0);
}

Tensor vector_norm(const Tensor& x, double p, IntArrayRef dims, bool keepdim) {
  if (p == 2) return power_from_zero((x * x).sum(dims, keepdim), 0.5);
  if (p == 1) return abs(x).sum(dims, keepdim);
  if (p == INFINITY) return abs(x).amax(dims, keepdim);
  if (p == -INFINITY) return abs(x).amin(dims, keepdim);
  // The number of values that are not zero; flat, so the gradient is zero.
  if (p == 0) return abs(sign(x)).sum(dims, keepdim);
  const Tensor size = abs(x);
  // Below p = 1 the slope at zero is infinite; a negative power of zero, and with it the sum, is
  // infinite.
  const Tensor powers = p > 0 ? power_from_zero(size, p) : pow(size, p);
  return power_from_zero(powers.sum(dims, keepdim), 1 / p);
}

Tensor log_sum_exp(const Tensor& x, IntArrayRef dims, bool keepdim) {
  const Tensor top = x.amax(dims, true).detach();
  // Nothing to subtract where the largest value is infinite: inf - inf is no number.
  const Tensor shift = where(isinf(top), 0.0, top);
  const Tensor logs = log(exp(x - shift).sum(dims, true)) + shift;
  if (keepdim) return logs;
  const Shape reduced = wrap_dims(dims, static_cast<int>(x.dim()), "logsumexp");
  Shape kept;
  for (int i = 0, next = 0; i < x.dim(); ++i) {
    if (next < reduced.size() && reduced[next] == i) ++next;
    else kept.push_back(x.shape()[i]);
  }
  return logs.view(kept);
}

}  // namespace

// --- sums and means ---

Tensor sum(const Tensor& x, std::optional<DType> dtype) {
  GRAPNEL_CALL_SITE;
  return reduce<Sum>(in_type(x, dtype), {}, false);
}
Tensor sum(const Tensor& x, IntArrayRef dims, bool keepdim, std::optional<DType> dtype) {
  GRAPNEL_CALL_SITE;
  return reduce<Sum>(in_type(x, dtype), dims, keepdim);
}
Tensor mean(const Tensor& x, std::optional<DType> dtype) {
  GRAPNEL_CALL_SITE;
  return reduce<Mean>(in_type(x, dtype), {}, false);
}
Tensor mean(const Tensor& x, IntArrayRef dims, bool keepdim, std::optional<DType> dtype) {
  GRAPNEL_CALL_SITE;
  return reduce<Mean>(in_type(x, dtype), dims, keepdim);
}
Tensor prod(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return reduce<Prod>(x, {}, false);
}
Tensor prod(const Tensor& x, int64_t dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return reduce<Prod>(x, dim, keepdim);
}

Tensor Tensor::sum(std::optional<DType> dtype) const {
  GRAPNEL_CALL_SITE;
  return grapnel::sum(*this, dtype);
}
Tensor Tensor::sum(IntArrayRef dims, bool keepdim, std::optional<DType> dtype) const {
  GRAPNEL_CALL_SITE;
  return grapnel::sum(*this, dims, keepdim, dtype);
}
Tensor Tensor::mean(std::optional<DType> dtype) const {
  GRAPNEL_CALL_SITE;
  return grapnel::mean(*this, dtype);
}
Tensor Tensor::mean(IntArrayRef dims, bool keepdim, std::optional<DType> dtype) const {
  GRAPNEL_CALL_SITE;
  return grapnel::mean(*this, dims, keepdim, dtype);
}
Tensor Tensor::prod() const {
  GRAPNEL_CALL_SITE;
  return grapnel::prod(*this);
}
Tensor Tensor::prod(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::prod(*this, dim, keepdim);
}

Tensor Tensor::sum_to_size(IntArrayRef sizes) const {
  GRAPNEL_CALL_SITE;
  if (sizes == shape()) return *this;
  const auto missing = dim() - static_cast<int64_t>(sizes.size());
  bool fits = missing >= 0;
  Shape dims;
  for (int64_t i = 0; fits && i < dim(); ++i) {
    const int64_t wanted = i < missing ? 1 : sizes[static_cast<size_t>(i - missing)];
    if (i < missing || (wanted == 1 && size(i) != 1)) dims.push_back(i);
    else fits = wanted == size(i);
  }
  check(fits, "sum_to_size: shape ", shape(), " was not broadcast from ", sizes,
        ".\nThe target must broadcast to the tensor's shape.");
  const bool only_leading = dims.size() == missing;
  const Tensor reduced = apply<Sum>({.dims = dims, .keepdim = !only_leading}, *this);
  return missing == 0 || only_leading ? reduced : reduced.view(sizes);
}

// --- extremes, any and all ---

Tensor amax(const Tensor& x, IntArrayRef dims, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return extreme<Amax>(x, dims, keepdim);
}
Tensor amin(const Tensor& x, IntArrayRef dims, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return extreme<Amin>(x, dims, keepdim);
}
Tensor max(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return extreme<Amax>(x, {}, false);
}
Tensor min(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return extreme<Amin>(x, {}, false);
}
Tensor max(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  return maximum(a, b);
}
Tensor min(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  return minimum(a, b);
}
Tensor any(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return reduce<Any>(x, {}, false);
}
Tensor all(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return reduce<All>(x, {}, false);
}

Tensor Tensor::amax(IntArrayRef dims, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::amax(*this, dims, keepdim);
}
Tensor Tensor::amin(IntArrayRef dims, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::amin(*this, dims, keepdim);
}
Tensor Tensor::max() const {
  GRAPNEL_CALL_SITE;
  return grapnel::max(*this);
}
Tensor Tensor::min() const {
  GRAPNEL_CALL_SITE;
  return grapnel::min(*this);
}
Tensor Tensor::any() const {
  GRAPNEL_CALL_SITE;
  return grapnel::any(*this);
}
Tensor Tensor::any(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return reduce<Any>(*this, dim, keepdim);
}
Tensor Tensor::all() const {
  GRAPNEL_CALL_SITE;
  return grapnel::all(*this);
}
Tensor Tensor::all(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return reduce<All>(*this, dim, keepdim);
}

// --- spread, size and smooth maximum ---

Tensor var(const Tensor& x, IntArrayRef dims, bool unbiased, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return widened(x, [&](const Tensor& w) { return variance(w, dims, unbiased, keepdim); });
}
Tensor std(const Tensor& x, IntArrayRef dims, bool unbiased, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return widened(x, [&](const Tensor& w) {
    return power_from_zero(variance(w, dims, unbiased, keepdim), 0.5);
  });
}
Tensor norm(const Tensor& x, const Scalar& p, IntArrayRef dims, bool keepdim) {
  GRAPNEL_CALL_SITE;
  check(is_floating(x.dtype()), "norm: the norm of ", x.dtype(),
        " values is not defined here.\nConvert first: x.to(kFloat32).");
  return widened(x, [&](const Tensor& w) { return vector_norm(w, p.to_double(), dims, keepdim); });
}
Tensor norm(const Tensor& x, const Scalar& p) {
  GRAPNEL_CALL_SITE;
  return norm(x, p, {}, false);
}
Tensor logsumexp(const Tensor& x, IntArrayRef dims, bool keepdim) {
  GRAPNEL_CALL_SITE;
  if (!is_floating(x.dtype())) return log_sum_exp(x.to(get_default_dtype()), dims, keepdim);
  return widened(x, [&](const Tensor& w) { return log_sum_exp(w, dims, keepdim); });
}

Tensor Tensor::var(IntArrayRef dims, bool unbiased, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::var(*this, dims, unbiased, keepdim);
}
Tensor Tensor::std(IntArrayRef dims, bool unbiased, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::std(*this, dims, unbiased, keepdim);
}
Tensor Tensor::norm(const Scalar& p) const {
  GRAPNEL_CALL_SITE;
  return grapnel::norm(*this, p);
}
Tensor Tensor::norm(const Scalar& p, IntArrayRef dims, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::norm(*this, p, dims, keepdim);
}
Tensor Tensor::logsumexp(IntArrayRef dims, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::logsumexp(*this, dims, keepdim);
}

}  // namespace grapnel
