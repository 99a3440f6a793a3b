/// Normalisation as users call it: layer_norm, and batch_norm, which is composed of other ops.
#include <algorithm>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/defs/norm.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return layer_norm(autocast::wide(x), normalized_shape, autocast::wide(weight),
                      autocast::wide(bias), eps);
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  check(dims >= 1 && dims <= x.dim() &&
            IntArrayRef(normalised_shape(x.shape(), dims)) == normalized_shape,
        "layer_norm: the last dimensions of x must be ", normalized_shape, ", but x is ", x.shape(),
        ".");
  check(!weight.defined() || IntArrayRef(weight.shape()) == normalized_shape,
        "layer_norm: weight must have the normalised shape ", normalized_shape, ", got ",
        weight.defined() ? weight.shape() : Shape(), ".");
  check(!bias.defined() || IntArrayRef(bias.shape()) == normalized_shape,
        "layer_norm: bias must have the normalised shape ", normalized_shape, ", got ",
        bias.defined() ? bias.shape() : Shape(), ".");
  return apply_all<LayerNorm>({.dims = dims, .eps = eps}, x, weight, bias)[0];
}

// --- batch norm ---

namespace {

struct NoRecording {
  bool before = GradMode::is_enabled();
  NoRecording() { GradMode::set_enabled(false); }
  ~NoRecording() { GradMode::set_enabled(before); }
};

void check_channels(const Tensor& t, const char* what, const Tensor& x) {
  check(!t.defined() || (t.dim() == 1 && t.size(0) == x.size(1)), "batch_norm: ", what,
        " must hold one number per channel: x is ", x.shape(), " with ", x.size(1), " channels, ",
        what, " has shape ", t.defined() ? t.shape() : Shape(), ".");
}

/// running moves towards the value of this batch by the given part of the way.
void update_running(const Tensor& running, const Tensor& value, double momentum) {
  if (!running.defined()) return;
  const NoRecording scope;
  running.mul_(1 - momentum).add_(value.reshape({-1}).to(running.dtype()), momentum);
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum, double eps) {
  GRAPNEL_CALL_SITE;
  check_norm_type("batch_norm", x);
  check(x.dim() >= 2, "batch_norm: x must be [batch, channels, ...], got shape ", x.shape(), ".");
  check_channels(weight, "weight", x);
  check_channels(bias, "bias", x);
  check_channels(running_mean, "running_mean", x);
  check_channels(running_var, "running_var", x);
  check(training || (running_mean.defined() && running_var.defined()),
        "batch_norm: without training it uses running_mean and running_var, ",
        "and one of them is missing.");

  Shape column = Shape::filled(static_cast<int>(x.dim()), 1), dims{0};
  column[1] = x.size(1);
  for (int64_t i = 2; i < x.dim(); ++i) dims.push_back(i);
  const DType wide = dtype_of(compute_type(x.dtype()));
  const Tensor values = x.dtype() == wide ? x : x.to(wide);
  const auto spread = [&](const Tensor& t) {
    return (t.dtype() == wide ? t : t.to(wide)).view(column);
  };

  Tensor centred, variance;
  if (training) {
    const int64_t count = x.numel() / std::max<int64_t>(1, x.size(1));
    check(count > 1, "batch_norm: training needs more than one value per channel, got ", count,
          " (x is ", x.shape(), ").");
    const Tensor mean = values.mean(dims, true);
    centred = values - mean;
    variance = (centred * centred).mean(dims, true);
    update_running(running_mean, mean.detach(), momentum);
    // The running variance is that of the distribution, which the batch underestimates.
    const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
    update_running(running_var, variance.detach() * unbiased, momentum);
  } else {
    centred = values - spread(running_mean);
    variance = spread(running_var);
  }
  Tensor y = centred * rsqrt(variance + eps);
  if (weight.defined()) y = y * spread(weight);
  if (bias.defined()) y = y + spread(bias);
  return y.dtype() == x.dtype() ? y : y.to(x.dtype());
}

}  // namespace grapnel
