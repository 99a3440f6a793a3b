/// Running sums and products.
#include "grapnel/ops/defs/sort.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {

/// Integers and bools are summed as i64.
DType running_type(DType in) { return is_floating(in) ? in : kInt64; }

/// y moved one step along `dim`, with `first` in front.
Tensor shifted(const Tensor& y, int64_t dim, double first) {
  Shape edge = y.shape();
  if (edge.empty() || y.numel() == 0)
    return first == 0 ? zeros(edge, y.options()) : ones(edge, y.options());
  edge[static_cast<int>(dim)] = 1;
  const Tensor parts[] = {first == 0 ? zeros(edge, y.options()) : ones(edge, y.options()),
                          y.slice(dim, 0, y.size(dim) - 1)};
  return cat(parts, dim);
}

}  // namespace

void Cumsum::infer(Inputs in, const Attrs& a, Specs& out) {
  attrs::dim(name, a.dim, in[0]->shape().size());
  out.push_back({in[0]->shape(), running_type(in[0]->dtype())});
}
Grads Cumsum::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  return {apply<Cumsum>({a.dim, !a.backwards}, g)};
}

void Cumprod::infer(Inputs in, const Attrs& a, Specs& out) {
  attrs::dim(name, a.dim, in[0]->shape().size());
  out.push_back({in[0]->shape(), running_type(in[0]->dtype())});
}
Grads Cumprod::grad(const Saved& s, const Tensor& g) {
  const int64_t dim = s.attrs<Attrs>().dim;
  return {shifted(s.output(), dim, 1) * apply<Recurrence>({dim, true}, g, s.input(0))};
}
Samples Cumprod::samples() {
  // A zero among the factors.
  std::vector<double> values = to_vector<double>(sample_tensor({4, 2}));
  values[2] = 0;
  const Tensor x = from_vector(values, {4, 2});
  return {sample({x}, Attrs{0}), sample({sample_tensor({2, 3})}, Attrs{1})};
}

void Recurrence::infer(Inputs in, const Attrs& a, Specs& out) {
  const Tensor &b = *in[0], &factors = *in[1];
  attrs::dim(name, a.dim, b.shape().size());
  check(is_floating(b.dtype()) && factors.shape() == b.shape(), name,
        ": needs floating-point tensors of one shape, got ", b.dtype(), b.shape(), " and ",
        factors.dtype(), factors.shape(), ".");
  out.push_back({b.shape(), b.dtype()});
}
Grads Recurrence::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  const Tensor of_b = apply<Recurrence>({a.dim, !a.backwards}, g, s.input(1));
  if (!s.needs(1)) return {of_b, Tensor()};
  const Tensor y = s.output();
  return {of_b, a.backwards ? shifted(of_b, a.dim, 0) * y : of_b * shifted(y, a.dim, 0)};
}

}  // namespace grapnel
