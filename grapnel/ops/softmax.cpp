/// Softmax and log-softmax: shape rules, what they mean in other ops, gradients.
#include "grapnel/ops/defs/softmax.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

void infer_like(std::string_view op, const Tensor& x, const SoftmaxAttrs& a, Specs& out) {
  check_as<TypeError>(is_floating(x.dtype()), op, ": not defined for ", x.dtype(),
                      ".\nConvert first: x.to(kFloat32).");
  attrs::dim(op, a.dim, x.shape().size());
  out.push_back({x.shape(), x.dtype()});
}

void infer_backward(std::string_view op, Inputs in, const SoftmaxAttrs& a, Specs& out) {
  infer_like(op, *in[1], a, out);
  check(in[0]->shape() == in[1]->shape() && in[0]->dtype() == in[1]->dtype(), op,
        ": the result is ", in[1]->dtype(), in[1]->shape(), ", its gradient ", in[0]->dtype(),
        in[0]->shape(), ".");
}

Samples backward_samples() {
  Samples samples = Softmax::samples();
  for (Sample& s : samples) s.inputs.push_back(sample_tensor(s.inputs[0].shape(), 0, 1));
  return samples;
}

}  // namespace

void Softmax::infer(Inputs in, const Attrs& a, Specs& out) { infer_like(name, *in[0], a, out); }
Grads Softmax::grad(const Saved& s, const Tensor& g) {
  return {apply<SoftmaxBackward>(s.attrs<Attrs>(), g, s.output())};
}
Outputs Softmax::lower(Inputs in, const Attrs& a) {
  const Tensor x = computed(*in[0]), e = exp(x - x.amax(a.dim, true));
  return {(e / e.sum(a.dim, true)).to(in[0]->dtype())};
}
Samples Softmax::samples() {
  return {sample({sample_tensor({2, 3})}, Attrs{.dim = 1}),
          sample({sample_tensor({3, 2, 2})}, Attrs{.dim = 0}),
          sample({sample_tensor({})}, Attrs{.dim = 0})};
}

void LogSoftmax::infer(Inputs in, const Attrs& a, Specs& out) { infer_like(name, *in[0], a, out); }
Grads LogSoftmax::grad(const Saved& s, const Tensor& g) {
  return {apply<LogSoftmaxBackward>(s.attrs<Attrs>(), g, s.output())};
}
Outputs LogSoftmax::lower(Inputs in, const Attrs& a) {
  const Tensor x = computed(*in[0]), z = x - x.amax(a.dim, true);
  return {(z - log(exp(z).sum(a.dim, true))).to(in[0]->dtype())};
}
Samples LogSoftmax::samples() { return Softmax::samples(); }

void SoftmaxBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  infer_backward(name, in, a, out);
}
/// g * y - y * sum(g * y) is linear and symmetric in g.
Grads SoftmaxBackward::grad(const Saved& s, const Tensor& h) {
  const Attrs& attrs = s.attrs<Attrs>();
  const Tensor y = s.input(1);
  Tensor of_y;
  if (s.needs(1)) {
    const auto along = [&](const Tensor& t) { return t.sum(attrs.dim, true); };
    const Tensor g = s.input(0);
    of_y = h * (g - along(g * y)) - g * along(h * y);
  }
  return {s.needs(0) ? apply<SoftmaxBackward>(attrs, h, y) : Tensor(), of_y};
}
Outputs SoftmaxBackward::lower(Inputs in, const Attrs& a) {
  const Tensor y = computed(*in[1]), p = computed(*in[0]) * y;
  return {(p - y * p.sum(a.dim, true)).to(in[0]->dtype())};
}
Samples SoftmaxBackward::samples() { return backward_samples(); }

void LogSoftmaxBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  infer_backward(name, in, a, out);
}
Grads LogSoftmaxBackward::grad(const Saved& s, const Tensor& h) {
  const int64_t dim = s.attrs<Attrs>().dim;
  const Tensor weighted = h * exp(s.input(1));
  return {s.needs(0) ? h - weighted.sum(dim, true) : Tensor(),
          s.needs(1) ? -weighted * s.input(0).sum(dim, true) : Tensor()};
}
Outputs LogSoftmaxBackward::lower(Inputs in, const Attrs& a) {
  const Tensor g = computed(*in[0]);
  return {(g - exp(computed(*in[1])) * g.sum(a.dim, true)).to(in[0]->dtype())};
}
Samples LogSoftmaxBackward::samples() { return backward_samples(); }

}  // namespace grapnel
