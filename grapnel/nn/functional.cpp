#include "grapnel/nn/functional.h"

#include <cmath>
#include <limits>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/checked.h"
#include "grapnel/base/half.h"
#include "grapnel/functions/broadcast_warning.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/tensor/tensor_index.h"

namespace grapnel::nn::functional {

// --- norms ---

namespace {
/// y [batch, channels, ...] scaled and shifted by one number for each channel.
Tensor scaled_by_channel(Tensor y, const Tensor& weight, const Tensor& bias) {
  Shape column = Shape::filled(static_cast<int>(y.dim()) - 1, 1);
  column[0] = y.size(1);
  if (weight.defined()) y = y * weight.view(column);
  if (bias.defined()) y = y + bias.view(column);
  return y;
}
}  // namespace

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  GRAPNEL_CALL_SITE;
  check(x.dim() >= 2 && num_groups > 0 && x.size(1) % num_groups == 0,
        "group_norm: x must be [batch, channels, ...] with channels a multiple of ", num_groups,
        " groups, got shape ", x.shape(), ".");
  const int64_t groups = checked_mul(x.size(0), num_groups, "group_norm"),
                per_group = x.numel() / std::max<int64_t>(1, groups);
  const Tensor y =
      layer_norm(x.reshape({groups, per_group}), {per_group}, {}, {}, eps).view(x.shape());
  return scaled_by_channel(y, weight, bias);
}

namespace {
double spacing_at_one(DType dtype) {
  if (dtype == kFloat64) return std::numeric_limits<double>::epsilon();
  return dtype == kFloat16 ? 0x1p-10 : dtype == kBFloat16 ? 0x1p-7 : 0x1p-23;
}
}  // namespace

Tensor rms_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  GRAPNEL_CALL_SITE;
  const auto n = static_cast<int64_t>(normalized_shape.size());
  check(n >= 1 && n <= x.dim() &&
            IntArrayRef(x.shape().end() - n, static_cast<size_t>(n)) == normalized_shape,
        "rms_norm: the last dimensions of x must be ", normalized_shape, ", but x is ", x.shape(),
        ".");
  Shape dims;
  for (int64_t i = -n; i < 0; ++i) dims.push_back(i);
  // Squares of narrow types overflow and lose digits, so the statistics are taken in f32.
  const DType wide = dtype_of(compute_type(x.dtype()));
  const Tensor v = x.dtype() == wide ? x : x.to(wide);
  Tensor y = v * rsqrt(v.square().mean(dims, true) + eps.value_or(spacing_at_one(x.dtype())));
  if (weight.defined()) y = y * weight;
  return y.dtype() == x.dtype() ? y : y.to(x.dtype());
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, bool use_input_stats,
                     double momentum, double eps) {
  GRAPNEL_CALL_SITE;
  check(x.dim() >= 3, "instance_norm: x must be [batch, channels, sizes...], got shape ", x.shape(),
        ".");
  check(running_mean.defined() == running_var.defined() &&
            (use_input_stats || running_mean.defined()),
        "instance_norm: without the statistics of x both running ones are needed.");
  if (!use_input_stats)
    return batch_norm(x, weight, bias, running_mean, running_var, /*training=*/false, momentum,
                      eps);
  const int64_t images = checked_mul(x.size(0), x.size(1), "instance_norm"),
                pixels = x.numel() / std::max<int64_t>(1, images);
  check(pixels > 1, "instance_norm: there must be more than one pixel per channel, got shape ",
        x.shape(), ".");
  if (running_mean.defined()) {
    NoGradGuard no_grad;
    const Tensor flat = x.reshape({x.size(0), x.size(1), pixels});
    running_mean.lerp_(flat.mean({2}).mean({0}), momentum);
    running_var.lerp_(flat.var({2}).mean({0}), momentum);
  }
  const Tensor y = layer_norm(x.reshape({images, pixels}), {pixels}, {}, {}, eps).view(x.shape());
  return scaled_by_channel(y, weight, bias);
}

// --- dropout ---

namespace {
void check_dropout(const char* name, const Tensor& x, double p) {
  check(p >= 0 && p <= 1, name, ": a probability lies between 0 and 1, got ", p, ".");
  check(is_floating(x.dtype()), name, ": not defined for ", x.dtype(),
        ".\nConvert first: x.to(kFloat32).");
}
/// A one for every element that stays, or for every channel; elsewhere zeros.
Tensor keep(const char* name, const Tensor& x, double p, bool by_channel) {
  Shape sizes = x.shape();
  if (by_channel) {
    check(x.dim() >= 2, name, ": x must be [batch, channels, ...], got shape ", x.shape(), ".");
    for (int i = 2; i < sizes.size(); ++i) sizes[i] = 1;
  }
  return empty(sizes, x.options()).bernoulli_(1 - p);
}
Tensor alpha_drop(const char* name, const Tensor& x, double p, bool by_channel) {
  if (p == 1) return x * 0.0;
  // What SELU comes down to, and the scale and the shift that put mean and variance right again.
  const double floor = 1.7580993408473766, scale = 1 / std::sqrt((floor * floor * p + 1) * (1 - p));
  const Tensor kept = keep(name, x, p, by_channel);
  return x * (kept * scale) + ((kept - 1.0) * (floor * scale) + floor * scale * p);
}
}  // namespace

Tensor feature_dropout(const Tensor& x, double p, bool training) {
  GRAPNEL_CALL_SITE;
  check_dropout("feature_dropout", x, p);
  if (!training || p == 0) return x;
  const Tensor kept = keep("feature_dropout", x, p, /*by_channel=*/true);
  return x * (p < 1 ? kept * (1 / (1 - p)) : kept);
}
Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  GRAPNEL_CALL_SITE;
  check_dropout("alpha_dropout", x, p);
  return training && p > 0 ? alpha_drop("alpha_dropout", x, p, /*by_channel=*/false) : x;
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  GRAPNEL_CALL_SITE;
  check_dropout("feature_alpha_dropout", x, p);
  return training && p > 0 ? alpha_drop("feature_alpha_dropout", x, p, /*by_channel=*/true) : x;
}

// --- pooling ---

Tensor max_pool1d(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride,
                  int64_t padding, int64_t dilation, bool ceil_mode) {
  GRAPNEL_CALL_SITE;
  return max_pool2d(x.unsqueeze(-2), {1, kernel_size}, {1, stride.value_or(kernel_size)},
                    {0, padding}, {1, dilation}, ceil_mode)
      .squeeze(-2);
}
Tensor avg_pool1d(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride,
                  int64_t padding, bool ceil_mode, bool count_include_pad) {
  GRAPNEL_CALL_SITE;
  return avg_pool2d(x.unsqueeze(-2), {1, kernel_size}, {1, stride.value_or(kernel_size)},
                    {0, padding}, ceil_mode, count_include_pad)
      .squeeze(-2);
}

namespace {
/// Window i of `count` covers [i * size / count, ceil((i + 1) * size / count)).
template <class Pool>
Tensor adaptive_pool(const char* name, Tensor x, IntArrayRef output_size, Pool pool) {
  const auto n = static_cast<int64_t>(output_size.size());
  check(x.dim() > n, name, ": x needs at least ", n + 1, " dimensions, got shape ", x.shape(), ".");
  for (int64_t d = 0; d < n; ++d) {
    const int64_t dim = x.dim() - n + d, size = x.size(dim),
                  count = output_size[static_cast<size_t>(d)];
    if (count == -1 || count == size) continue;
    check(count > 0 && size > 0, name,
          ": output sizes must be positive (or -1) and x not empty, got ", output_size, " and ",
          x.shape(), ".");
    if (size % count == 0) {
      x = pool(x.unflatten(dim, {count, size / count}), dim + 1);
      continue;
    }
    check(count <= attrs::kMostResults, name, ": an output size must be at most ",
          attrs::kMostResults, ", got ", output_size, ".");
    std::vector<Tensor> windows;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = i * size / count, end = ceil_div((i + 1) * size, count);
      windows.push_back(pool(x.narrow(dim, begin, end - begin), dim));
    }
    x = stack(windows, dim);
  }
  return x;
}
}  // namespace

// The mean of means: windows of one dimension all have the same size along the others.
Tensor adaptive_avg_pool(const Tensor& x, IntArrayRef output_size) {
  GRAPNEL_CALL_SITE;
  return adaptive_pool("adaptive_avg_pool", x, output_size,
                       [](const Tensor& t, int64_t dim) { return t.mean({dim}); });
}
Tensor adaptive_max_pool(const Tensor& x, IntArrayRef output_size) {
  GRAPNEL_CALL_SITE;
  return adaptive_pool("adaptive_max_pool", x, output_size,
                       [](const Tensor& t, int64_t dim) { return std::get<0>(t.max(dim)); });
}

// --- embedding ---

Tensor embedding_renorm_(Tensor weight, const Tensor& indices, double max_norm, double norm_type) {
  GRAPNEL_CALL_SITE;
  check(weight.dim() == 2, "embedding_renorm_: weight must be [rows, features], got shape ",
        weight.shape(), ".");
  NoGradGuard no_grad;
  const Tensor chosen = indices.reshape({-1}), rows = weight.index_select(0, chosen),
               norms = rows.norm(norm_type, {1}, /*keepdim=*/true);
  // The small number is LibTorch's. A row that is named twice is written twice, with the same
  // values.
  return weight.index_put_({chosen},
                           rows * where(norms > max_norm, max_norm / (norms + 1e-7), 1.0));
}

// --- losses ---

Tensor reduced(const Tensor& loss, Reduce reduction) {
  return reduction == Reduce::mean ? loss.mean() : reduction == Reduce::sum ? loss.sum() : loss;
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                            Reduce reduction) {
  GRAPNEL_CALL_SITE;
  return grapnel::binary_cross_entropy(x, target, weight, reduction);
}

// A square up to a distance and a line beyond it. Written so that no part of it is infinite where
// the loss is not.
Tensor huber_loss(const Tensor& x, const Tensor& target, Reduce reduction, double delta) {
  GRAPNEL_CALL_SITE;
  check(delta > 0, "huber_loss: delta must be positive, got ", delta, ".");
  const Tensor d = (x - target).abs(), near = d.clamp_max(delta);
  warn_if_broadcast("huber_loss", x, target);
  return reduced(0.5 * near * near + delta * (d - near), reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduce reduction, double beta) {
  GRAPNEL_CALL_SITE;
  check(beta >= 0, "smooth_l1_loss: beta must not be negative, got ", beta, ".");
  if (beta == 0) return l1_loss(x, target, reduction);
  const Tensor d = (x - target).abs(), near = d.clamp_max(beta);
  warn_if_broadcast("smooth_l1_loss", x, target);
  return reduced(0.5 * near * near / beta + (d - near), reduction);
}

Tensor kl_div(const Tensor& x, const Tensor& target, KLReduce reduction, bool log_target) {
  GRAPNEL_CALL_SITE;
  // 0 * log(0) counts as 0: an outcome that never happens costs nothing.
  // Nor has it a part in gradients, so its logarithm must not be infinite.
  const auto of_probabilities = [&] {
    const Tensor happens = target > 0;
    return where(happens, target * (where(happens, target, 1.0).log() - x), 0.0);
  };
  const Tensor loss = log_target ? target.exp() * (target - x) : of_probabilities();
  switch (reduction) {
    case KLReduce::none: return loss;
    case KLReduce::mean: return loss.mean();
    case KLReduce::sum: return loss.sum();
    case KLReduce::batch_mean:
      return loss.sum() / static_cast<double>(std::max<int64_t>(1, x.size(0)));
  }
  __builtin_unreachable();
}

}  // namespace grapnel::nn::functional
