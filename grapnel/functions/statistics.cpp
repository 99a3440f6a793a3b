#include "grapnel/functions/statistics.h"

#include <cmath>
#include <numeric>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/op.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

// --- spread ---

std::tuple<Tensor, Tensor> std_mean(const Tensor& x, IntArrayRef dims, bool unbiased,
                                    bool keepdim) {
  GRAPNEL_CALL_SITE;
  return {std(x, dims, unbiased, keepdim), mean(x, dims, keepdim)};
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, IntArrayRef dims, bool unbiased,
                                    bool keepdim) {
  GRAPNEL_CALL_SITE;
  return {var(x, dims, unbiased, keepdim), mean(x, dims, keepdim)};
}

// --- medians and quantiles ---

std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  const int at = wrap_dim(dim, static_cast<int>(x.dim()), "median");
  if (x.dim() == 0) return {x.clone(), zeros({}, TensorOptions(kInt64).device(x.device()))};
  check(x.size(at) > 0, "median: dimension ", dim, " of shape ", x.shape(), " has no elements.");
  const auto [sorted, order] = sort(x, at);
  const int64_t middle = (x.size(at) - 1) / 2;
  Tensor value = sorted.narrow(at, middle, 1), place = order.narrow(at, middle, 1);
  if (is_floating(x.dtype())) {
    // NaN are sorted to the end, and one of them is enough.
    const Tensor last = sorted.narrow(at, x.size(at) - 1, 1), none = isnan(last);
    value = where(none, last, value);
    place = where(none, order.narrow(at, x.size(at) - 1, 1), place);
  }
  if (keepdim) return {value.contiguous(), place.contiguous()};
  return {value.squeeze(at).contiguous(), place.squeeze(at).contiguous()};
}
Tensor median(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  check(x.numel() > 0, "median: a tensor without elements has none (shape ", x.shape(), ").");
  return std::get<0>(median(x.reshape({-1}), 0));
}

namespace {

/// Of each pair of neighbours, so much of the upper one.
Tensor between(const Tensor& place, std::string_view interpolation) {
  const Tensor rest = place - floor(place);
  if (interpolation == "linear") return rest;
  if (interpolation == "lower") return zeros_like(rest);
  if (interpolation == "higher") return ceil(rest);
  if (interpolation == "nearest") return round(place) - floor(place);
  check(
      interpolation == "midpoint",
      "quantile: interpolation is \"linear\", \"lower\", \"higher\", \"nearest\" or \"midpoint\", "
      "got \"",
      interpolation, "\".");
  return ceil(rest) * 0.5;
}

}  // namespace

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  GRAPNEL_CALL_SITE;
  check(is_floating(x.dtype()) && q.dtype() == x.dtype() && q.dim() <= 1,
        "quantile: x and q must be of one floating-point type and q a number or a vector, got ",
        x.dtype(), " and ", q.dtype(), " of shape ", q.shape(), ".");
  check(x.numel() > 0, "quantile: x of shape ", x.shape(), " has no elements.");
  // Places in a row are numbers that a narrow type does not hold.
  const DType wide = dtype_of(compute_type(x.dtype()));
  if (wide != x.dtype())
    return quantile(x.to(wide), q.to(wide), dim, keepdim, interpolation).to(x.dtype());
  const int at = dim ? wrap_dim(*dim, static_cast<int>(x.dim()), "quantile") : 0;
  const bool flat = !dim || x.dim() == 0;
  const Tensor rows = flat ? x.reshape({-1}) : x.movedim(at, -1);
  const Tensor sorted = std::get<0>(sort(rows, -1));
  const int64_t n = rows.size(-1);
  // Of a row with NaN, the last one in order, every quantile is NaN.
  const Tensor place = clamp(q.reshape({-1}), 0, 1) * static_cast<double>(n - 1);
  const Tensor low = floor(place).to(kInt64), high = clamp(low + 1, {}, n - 1);
  const Tensor weight = between(place, interpolation);
  const Tensor below = index_select(sorted, -1, low), above = index_select(sorted, -1, high);
  const Tensor mixed = where(weight == 0, below, lerp(below, above, weight));
  const Tensor none = isnan(sorted.narrow(-1, n - 1, 1));
  Tensor out = masked_fill(mixed, none, NAN).movedim(-1, 0);
  if (keepdim) {
    Shape sizes = flat ? Shape::filled(static_cast<int>(x.dim()), 1) : x.shape();
    if (!flat) sizes[at] = 1;
    sizes.insert(0, q.numel());
    out = out.reshape(sizes);
  }
  return q.dim() == 0 ? out.squeeze(0) : out;
}
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  GRAPNEL_CALL_SITE;
  check(q >= 0 && q <= 1, "quantile: a share lies between 0 and 1, got ", q, ".");
  return quantile(x, scalar_tensor(q, TensorOptions(x.dtype()).device(x.device())), dim, keepdim,
                  interpolation);
}

// --- counts ---

Tensor count_nonzero(const Tensor& x, IntArrayRef dims) {
  GRAPNEL_CALL_SITE;
  return sum(x != 0, dims);
}

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
  GRAPNEL_CALL_SITE;
  check(x.dim() == 1 && !is_floating(x.dtype()) && minlength >= 0,
        "bincount: x must be a vector of whole numbers and minlength not negative, got ", x.dtype(),
        " of shape ", x.shape(), " and ", minlength, ".");
  check(!weights.defined() || weights.shape() == x.shape(),
        "bincount: there must be one weight for each element, got shapes ",
        weights.defined() ? weights.shape() : Shape(), " and ", x.shape(), ".");
  const Tensor values = x.to(kInt64);
  int64_t size = minlength;
  if (x.numel() > 0) {
    check(values.min().item<int64_t>() >= 0,
          "bincount: the elements must not be negative, the smallest is ",
          values.min().item<int64_t>(), ".");
    size = std::max(size, checked_add(values.max().item<int64_t>(), int64_t{1}, "bincount"));
  }
  const Tensor amounts = weights.defined() ? weights : ones_like(values);
  const DType type = !weights.defined()            ? kInt64
                     : weights.dtype() == kFloat32 ? kFloat32
                                                   : kFloat64;
  return scatter_add(zeros({size}, TensorOptions(type).device(x.device())), 0, values,
                     amounts.to(type));
}

Tensor histc(const Tensor& x, int64_t bins, const Scalar& min, const Scalar& max) {
  GRAPNEL_CALL_SITE;
  check(bins > 0 && is_floating(x.dtype()),
        "histc: there must be at least one bin, and x of a floating-point type, got ", bins,
        " and ", x.dtype(), ".");
  double low = min.to_double(), high = max.to_double();
  // Numbers of bins and counts are more than a narrow type holds.
  const Tensor values = x.detach().reshape({-1}).to(dtype_of(compute_type(x.dtype())));
  if (low == high && x.numel() > 0)
    low = values.min().item<double>(), high = values.max().item<double>();
  if (low == high) low -= 1, high += 1;
  check(std::isfinite(low) && std::isfinite(high) && low < high, "histc: [", low, ", ", high,
        "] is no interval of finite length.");
  const Tensor place = (values - low) * (static_cast<double>(bins) / (high - low));
  const Tensor inside = (values >= low) & (values <= high);
  // What lies outside, NaN included, goes to a bin of its own, which is cut off.
  const Tensor bin = where(inside, clamp(floor(where(inside, place, 0)), 0, bins - 1), bins);
  const Tensor counts =
      scatter_add(zeros({checked_add(bins, int64_t{1}, "histc")}, values.options()), 0,
                                    bin.to(kInt64), ones_like(values));
  return counts.narrow(0, 0, bins).to(x.dtype()).contiguous();
}

// --- places in sorted sequences ---

Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool right) {
  GRAPNEL_CALL_SITE;
  const Tensor s = sorted_sequence.detach(), v = values.detach();
  bool fits = s.dim() == 1 || (s.dim() > 1 && s.dim() == v.dim());
  for (int64_t i = 0; fits && s.dim() > 1 && i + 1 < s.dim(); ++i) fits = s.size(i) == v.size(i);
  check(fits,
        "searchsorted: the sequence must be a vector or have one row for each row of values, ",
        "got shapes ", s.shape(), " and ", v.shape(), ".");
  // A binary search of all values at once, one comparison of each per step.
  const int64_t n = s.size(-1);
  const Tensor rows = s.dim() == 1 ? v.reshape({-1}) : v;
  Tensor low = zeros(rows.sizes(), TensorOptions(kInt64).device(v.device()));
  for (int64_t reach = n > 0 ? int64_t{1} << (63 - __builtin_clzll(static_cast<uint64_t>(n))) : 0;
       reach > 0; reach /= 2) {
    // Whether the first `reach` elements more stand before the value, too.
    const Tensor next = low + reach, at = clamp(next, {}, n) - 1;
    const Tensor element = s.gather(-1, at);
    const Tensor before = right ? logical_not(element > rows) : element < rows;
    low = where((next <= n) & before, next, low);
  }
  return low.reshape(v.sizes());
}
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right) {
  GRAPNEL_CALL_SITE;
  check(boundaries.dim() == 1, "bucketize: the boundaries must be a vector, got shape ",
        boundaries.shape(), ".");
  return searchsorted(boundaries, x, right);
}

std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  const Tensor flat = x.detach().reshape({-1});
  const int64_t n = flat.numel();
  const TensorOptions whole = TensorOptions(kInt64).device(x.device());
  if (n == 0) return {flat.clone(), zeros(x.sizes(), whole), zeros({0}, whole)};
  const auto [sorted, order] = sort(flat, 0);
  const Tensor first = cat({ones({1}, TensorOptions(kBool).device(x.device())),
                            sorted.narrow(0, 1, n - 1) != sorted.narrow(0, 0, n - 1)});
  const Tensor starts = nonzero(first).reshape({-1});
  const Tensor group = cumsum(first.to(kInt64), 0) - 1;
  const Tensor inverse = scatter(zeros({n}, whole), 0, order, group);
  const Tensor counts =
      cat({starts.narrow(0, 1, starts.numel() - 1), full({1}, n, whole)}) - starts;
  return {index_select(sorted, 0, starts), inverse.reshape(x.sizes()), counts};
}

Tensor Tensor::median() const {
  GRAPNEL_CALL_SITE;
  return grapnel::median(*this);
}
TensorPair Tensor::median(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::median(*this, dim, keepdim);
}
Tensor Tensor::count_nonzero(IntArrayRef dims) const {
  GRAPNEL_CALL_SITE;
  return grapnel::count_nonzero(*this, dims);
}

}  // namespace grapnel
