#include "grapnel/ops/defs/norm.h"

#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/kernels/row.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

namespace {

constexpr int64_t kWork = 16384;

void check_floating(std::string_view op, const Tensor& x) {
  check(is_floating(x.dtype()), op, ": not defined for ", x.dtype(),
        ".\nConvert first: x.to(kFloat32).");
}

/// The shape of x without and with its last `dims` dimensions only.
Shape leading(const Shape& s, int64_t dims) {
  Shape out = s;
  out.resize(s.size() - static_cast<int>(dims));
  return out;
}
Shape trailing(const Shape& s, int64_t dims) { return Shape(std::span(s.end() - dims, s.end())); }

/// Fails unless x has the dimensions that are normalised, and weight and bias, where given, their
/// shape.
void check_normalised(std::string_view op, const Tensor& x, const NormAttrs& attrs,
                      const Tensor& weight, const Tensor& bias) {
  check(attrs.dims >= 1 && attrs.dims <= x.dim(), op, ": ", attrs.dims,
        " dimensions are to be normalised, but x has shape ", x.shape(), ".");
  const Shape normalised = trailing(x.shape(), attrs.dims);
  for (const Tensor* t : {&weight, &bias})
    check(!t->defined() || t->shape() == normalised, op,
          ": weight and bias must have the normalised shape ", normalised, ", got ",
          t->defined() ? t->shape() : Shape(), ".");
}

Shape last_dims(int64_t dims) {
  Shape out;
  for (int64_t d = -dims; d < 0; ++d) out.push_back(d);
  return out;
}

/// One value per row, ready to broadcast against the rows.
Tensor as_column(const Tensor& t, int64_t dims) {
  Shape sizes = t.shape();
  for (int64_t i = 0; i < dims; ++i) sizes.push_back(1);
  return t.view(sizes);
}

/// Where the values of an operand lie, `size` bytes each; null for an absent one.
struct Memory {
  Tensor tensor;
  char* data = nullptr;
  explicit Memory(Tensor t) : tensor(std::move(t)) {
    if (tensor.defined()) data = tensor.impl().data();
  }
  static Memory of(const Tensor& t, DType wide) {
    return Memory(t.defined() ? dense(t, wide) : Tensor());
  }
  char* row(int64_t r, int64_t stride) const { return data ? data + r * stride : nullptr; }
};

/// Cuts `rows` rows of n elements into pieces; fn(begin, count, scratch).
template <class Fn>
void for_row_pieces(int64_t rows, int64_t n, int64_t size, const Fn& fn) {
  base::parallel_for(rows, std::max<int64_t>(1, kWork / n), [&](int64_t begin, int64_t end) {
    const auto scratch =
        std::make_unique_for_overwrite<char[]>(static_cast<size_t>(kernels::row_scratch(n) * size));
    fn(begin, end - begin, scratch.get());
  });
}

}  // namespace

// --- layer norm ---

void LayerNorm::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor& x = *in[0];
  check_floating(name, x);
  check_normalised(name, x, attrs, *in[1], *in[2]);
  const DType wide = dtype_of(compute_type(x.dtype()));
  out.push_back({x.shape(), x.dtype()});
  out.push_back({leading(x.shape(), attrs.dims), wide});
  out.push_back({leading(x.shape(), attrs.dims), wide});
}

void LayerNorm::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  const int64_t rows = out[1].numel();
  if (out[0].numel() == 0) return;
  const int64_t n = out[0].numel() / rows;
  const DType wide = out[1].dtype();
  const auto size = static_cast<int64_t>(element_size(wide));
  const Memory x = Memory::of(*in[0], wide), weight = Memory::of(*in[1], wide),
               bias = Memory::of(*in[2], wide);
  const Memory y(result_buffer(out[0], wide)), mean(out[1]), rstd(out[2]);
  const auto kernel = kernels::row_kernels(compute_type(wide)).layer_norm;
  for_row_pieces(rows, n, size, [&](int64_t r, int64_t count, char* scratch) {
    kernel({count, n, x.row(r, n * size), weight.data, bias.data, attrs.eps, y.row(r, n * size),
            mean.row(r, size), rstd.row(r, size), scratch});
  });
  store_result(out[0], y.tensor);
}

Grads LayerNorm::grad(const Saved& s, const Grads& g) {
  if (!s.needs(0) && !s.needs(1)) return {Tensor(), Tensor(), g[0]};
  const Attrs& attrs = s.attrs<Attrs>();
  const Tensor x = s.input(0), weight = s.input(1), mean = s.output(1), rstd = s.output(2);
  Tensor gx, gw;
  if (g[0].defined()) {
    const Outputs grads = apply_all<LayerNormBackward>(attrs, g[0], x, mean, rstd, weight);
    gx = grads[0];
    // Summed over the rows by the engine, like everything that was broadcast.
    if (s.needs(1)) gw = grads[1];
  }
  // A gradient reaches the statistics only when the gradient itself is differentiated.
  const auto column = [&](const Tensor& t) { return as_column(t, attrs.dims); };
  const auto add = [&](const Tensor& more) {
    gx = gx.defined() ? gx + more : more.expand(x.shape());
  };
  const double n =
      static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, mean.numel()));
  if (s.needs(0) && g[1].defined()) add(column(g[1]) / n);
  if (s.needs(0) && g[2].defined())
    add((x - column(mean)) * column(g[2] * rstd * rstd * rstd / -n));
  return {gx, gw, s.needs(2) ? g[0] : Tensor()};
}

Samples LayerNorm::samples() {
  return {sample({sample_tensor({2, 4}), sample_tensor({4}, 0.5, 2), sample_tensor({4})},
                 Attrs{.dims = 1, .eps = 1e-3}),
          sample({sample_tensor({2, 2, 3}), Tensor(), Tensor()}, Attrs{.dims = 2, .eps = 1e-3})};
}

void LayerNormBackward::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &g = *in[0], &x = *in[1], &mean = *in[2], &rstd = *in[3], &weight = *in[4];
  check_floating(name, g);
  check_normalised(name, g, attrs, weight, Tensor());
  const Shape rows = leading(g.shape(), attrs.dims);
  check(x.shape() == g.shape() && mean.shape() == rows && rstd.shape() == rows, name,
        ": the gradient has shape ", g.shape(), ", so x must have it, too, and the statistics ",
        rows, "; got ", x.shape(), ", ", mean.shape(), " and ", rstd.shape(), ".");
  out.push_back({g.shape(), g.dtype()});
  if (weight.defined()) out.push_back({g.shape(), g.dtype()});
}

void LayerNormBackward::run(Inputs in, const Attrs&, std::span<Tensor> out) {
  const int64_t rows = in[2]->numel();
  if (out[0].numel() == 0) return;
  const int64_t n = out[0].numel() / rows;
  const DType wide = dtype_of(compute_type(in[0]->dtype()));
  const auto size = static_cast<int64_t>(element_size(wide));
  const Memory g = Memory::of(*in[0], wide), x = Memory::of(*in[1], wide),
               mean = Memory::of(*in[2], wide), rstd = Memory::of(*in[3], wide);
  const Memory weight = Memory::of(*in[4], wide), gx(result_buffer(out[0], wide));
  const Memory product(out.size() > 1 ? result_buffer(out[1], wide) : Tensor());
  const auto kernel = kernels::row_kernels(compute_type(wide)).layer_norm_backward;
  for_row_pieces(rows, n, size, [&](int64_t r, int64_t count, char* scratch) {
    kernel({count, n, g.row(r, n * size), x.row(r, n * size), mean.row(r, size), rstd.row(r, size),
            weight.data, gx.row(r, n * size), product.row(r, n * size), scratch});
  });
  store_result(out[0], gx.tensor);
  if (out.size() > 1) store_result(out[1], product.tensor);
}

/// With m() the mean of a row, h = (x - mean) * r and w = weight * g, the outputs are r * (w - m(w)
/// - h * m(w * h)) and g * h.
Grads LayerNormBackward::grad(const Saved& s, const Grads& incoming) {
  const Attrs& attrs = s.attrs<Attrs>();
  const Shape dims = last_dims(attrs.dims);
  const auto m = [&](const Tensor& t) { return t.mean(dims, true); };
  const Tensor g = s.input(0), weight = s.input(4);
  const Tensor centred = s.input(1) - as_column(s.input(2), attrs.dims),
               r = as_column(s.input(3), attrs.dims), h = centred * r;

  // The gradients of g, weight, h and r, from the first output and then from the second.
  Tensor gg, gw, gh, gr;
  if (const Tensor& u = incoming[0]; u.defined()) {
    const Tensor w = weight.defined() ? g * weight : g, along = m(w * h), ur = u * r;
    const Tensor to_w = ur - m(ur) - h * m(ur * h);
    gg = weight.defined() ? to_w * weight : to_w;
    if (s.needs(4)) gw = to_w * g;
    gh = -(ur * along + w * m(ur * h));
    gr = u * (w - m(w) - h * along);
  }
  if (incoming.size() > 1 && incoming[1].defined()) {
    const Tensor& v = incoming[1];
    gg = gg.defined() ? gg + v * h : v * h;
    gh = gh.defined() ? gh + v * g : v * g;
  }
  const Tensor gx = gh * r;
  gr = gr.defined() ? gr + gh * centred : gh * centred;
  return {gg, gx, s.needs(2) ? -gx.sum(dims) : Tensor(), s.needs(3) ? gr.sum(dims) : Tensor(), gw};
}

Samples LayerNormBackward::samples() {
  return {
      sample({sample_tensor({2, 4}, -1, 1), sample_tensor({2, 4}), sample_tensor({2}, -0.5, 0.5),
              sample_tensor({2}, 0.5, 2), sample_tensor({4}, 0.5, 2)},
             Attrs{.dims = 1, .eps = 1e-3}),
      sample({sample_tensor({2, 2, 3}, -1, 1), sample_tensor({2, 2, 3}),
              sample_tensor({2}, -0.5, 0.5), sample_tensor({2}, 0.5, 2), Tensor()},
             Attrs{.dims = 2, .eps = 1e-3})};
}

Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return layer_norm(autocast::wide(x), normalized_shape, autocast::wide(weight),
                      autocast::wide(bias), eps);
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  check(dims >= 1 && dims <= x.dim() && IntArrayRef(trailing(x.shape(), dims)) == normalized_shape,
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
  check_floating("batch_norm", x);
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
