/// Layer norm: its shape rule, what it means in other ops, gradients of both orders, and samples.
#include "grapnel/ops/defs/norm.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

void check_norm_type(std::string_view op, const Tensor& x) {
  check_as<TypeError>(is_floating(x.dtype()), op, ": not defined for ", x.dtype(),
                      ".\nConvert first: x.to(kFloat32).");
}

Shape normalised_shape(const Shape& s, int64_t dims) {
  return Shape(std::span(s.end() - dims, s.end()));
}

namespace {

/// The shape of x without its last `dims` dimensions.
Shape leading(const Shape& s, int64_t dims) {
  Shape out = s;
  out.resize(s.size() - static_cast<int>(dims));
  return out;
}

/// Fails unless x has the dimensions that are normalised, and weight and bias, where given, their
/// shape.
void check_normalised(std::string_view op, const Tensor& x, const NormAttrs& attrs,
                      const Tensor& weight, const Tensor& bias) {
  check(attrs.dims >= 1 && attrs.dims <= x.dim(), op, ": ", attrs.dims,
        " dimensions are to be normalised, but x has shape ", x.shape(), ".");
  const Shape normalised = normalised_shape(x.shape(), attrs.dims);
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

}  // namespace

// --- layer norm ---

void LayerNorm::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor& x = *in[0];
  check_norm_type(name, x);
  check_normalised(name, x, attrs, *in[1], *in[2]);
  const DType wide = dtype_of(compute_type(x.dtype()));
  out.push_back({x.shape(), x.dtype()});
  out.push_back({leading(x.shape(), attrs.dims), wide});
  out.push_back({leading(x.shape(), attrs.dims), wide});
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

Outputs LayerNorm::lower(Inputs in, const Attrs& a) {
  const Shape dims = last_dims(a.dims);
  const Tensor x = computed(*in[0]), mean = x.mean(dims, true), c = x - mean,
               rstd = rsqrt((c * c).mean(dims, true) + a.eps);
  Tensor y = c * rstd;
  if (in[1]->defined()) y = y * computed(*in[1]);
  if (in[2]->defined()) y = y + computed(*in[2]);
  const Shape rows = leading(x.shape(), a.dims);
  return {y.to(in[0]->dtype()), mean.reshape(rows), rstd.reshape(rows)};
}
Samples LayerNorm::samples() {
  return {sample({sample_tensor({2, 4}), sample_tensor({4}, 0.5, 2), sample_tensor({4})},
                 Attrs{.dims = 1, .eps = 1e-3}),
          sample({sample_tensor({2, 2, 3}), Tensor(), Tensor()}, Attrs{.dims = 2, .eps = 1e-3})};
}

void LayerNormBackward::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &g = *in[0], &x = *in[1], &mean = *in[2], &rstd = *in[3], &weight = *in[4];
  check_norm_type(name, g);
  check_normalised(name, g, attrs, weight, Tensor());
  const Shape rows = leading(g.shape(), attrs.dims);
  check(x.shape() == g.shape() && mean.shape() == rows && rstd.shape() == rows, name,
        ": the gradient has shape ", g.shape(), ", so x must have it, too, and the statistics ",
        rows, "; got ", x.shape(), ", ", mean.shape(), " and ", rstd.shape(), ".");
  out.push_back({g.shape(), g.dtype()});
  if (weight.defined()) out.push_back({g.shape(), g.dtype()});
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

Outputs LayerNormBackward::lower(Inputs in, const Attrs& a) {
  const Shape dims = last_dims(a.dims);
  const auto mean = [&](const Tensor& t) { return t.mean(dims, true); };
  const Tensor g = computed(*in[0]), rstd = as_column(computed(*in[3]), a.dims),
               h = (computed(*in[1]) - as_column(computed(*in[2]), a.dims)) * rstd;
  const Tensor w = in[4]->defined() ? g * computed(*in[4]) : g;
  Outputs out{(((w - mean(w)) - h * mean(w * h)) * rstd).to(in[0]->dtype())};
  if (in[4]->defined()) out.push_back((g * h).to(in[0]->dtype()));
  return out;
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

}  // namespace grapnel
