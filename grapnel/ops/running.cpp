/// Running sums and products.
#include "grapnel/ops/defs/sort.h"
#include "grapnel/ops/lines.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// Integers and bools are summed as i64.
DType running_type(DType in) { return is_floating(in) ? in : kInt64; }

/// Computes each line in the compute type, from the first element to the last, or the other way
/// round: step(before, input, output, has_before) writes the output.
template <int K, class Fn>
void run_lines(std::array<Tensor, K> inputs, const Tensor& out, int dim, bool backwards, Fn step) {
  if (out.numel() == 0) return;
  const DType wide = dtype_of(compute_type(out.dtype()));
  const Tensor result = result_buffer(out, wide);
  visit_compute(out.dtype(), [&]<class T>() {
    std::array<Tensor, K + 1> tensors;
    tensors[0] = result;
    for (size_t k = 0; k < K; ++k) tensors[k + 1] = converted(inputs[k], wide);
    for_lines<K + 1>(out.shape(), dim, tensors, LineOrder::kept, [&](const LinePiece<K + 1>& p) {
      p.for_each([&](int64_t j, int64_t n) {
        const int64_t i = backwards ? p.end - 1 - n : n, before = backwards ? i + 1 : i - 1;
        p.template at<T>(0, j, i) =
            step(p, j, i, n == 0 ? T(0) : p.template at<T>(0, j, before), n == 0);
      });
    });
  });
  store_result(out, result);
}

/// y moved one step along `dim`, with `first` in front.
Tensor shifted(const Tensor& y, int64_t dim, double first) {
  Shape edge = y.shape();
  if (edge.empty() || y.numel() == 0)
    return first == 0 ? zeros(edge, y.dtype()) : ones(edge, y.dtype());
  edge[static_cast<int>(dim)] = 1;
  const Tensor parts[] = {first == 0 ? zeros(edge, y.dtype()) : ones(edge, y.dtype()),
                          y.slice(dim, 0, y.size(dim) - 1)};
  return cat(parts, dim);
}

}  // namespace

void Cumsum::infer(Inputs in, const Attrs& a, Specs& out) {
  attrs::dim(name, a.dim, in[0]->shape().size());
  out.push_back({in[0]->shape(), running_type(in[0]->dtype())});
}
void Cumsum::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  run_lines<1>({*in[0]}, out[0], static_cast<int>(a.dim), a.backwards,
               []<class T>(const auto& p, int64_t j, int64_t i, T before, bool first) {
                 const T x = p.template at<T>(1, j, i);
                 return first ? x : (wrapping(before) + wrapping(x)).v;
               });
}
Grads Cumsum::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  return {apply<Cumsum>({a.dim, !a.backwards}, g)};
}

void Cumprod::infer(Inputs in, const Attrs& a, Specs& out) {
  attrs::dim(name, a.dim, in[0]->shape().size());
  out.push_back({in[0]->shape(), running_type(in[0]->dtype())});
}
void Cumprod::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  run_lines<1>({*in[0]}, out[0], static_cast<int>(a.dim), false,
               []<class T>(const auto& p, int64_t j, int64_t i, T before, bool first) {
                 const T x = p.template at<T>(1, j, i);
                 return first ? x : (wrapping(before) * wrapping(x)).v;
               });
}
Grads Cumprod::grad(const Saved& s, const Tensor& g) {
  const int64_t dim = s.attrs<Attrs>().dim;
  return {shifted(s.output(), dim, 1) * apply<Recurrence>({dim, true}, g, s.input(0))};
}
Samples Cumprod::samples() {
  // A zero among the factors.
  const Tensor x = sample_tensor({4, 2});
  reinterpret_cast<double*>(x.impl().data())[2] = 0;
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
void Recurrence::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  run_lines<2>({*in[0], *in[1]}, out[0], static_cast<int>(a.dim), a.backwards,
               [&]<class T>(const auto& p, int64_t j, int64_t i, T before, bool first) {
                 const T b = p.template at<T>(1, j, i);
                 return first ? b : b + p.template at<T>(2, j, a.backwards ? i + 1 : i) * before;
               });
}
Grads Recurrence::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  const Tensor of_b = apply<Recurrence>({a.dim, !a.backwards}, g, s.input(1));
  if (!s.needs(1)) return {of_b, Tensor()};
  const Tensor y = s.output();
  return {of_b, a.backwards ? shifted(of_b, a.dim, 0) * y : of_b * shifted(y, a.dim, 0)};
}

Tensor Tensor::cumsum(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return apply<Cumsum>({wrap_dim(dim, shape().size(), "cumsum"), false}, *this);
}
Tensor Tensor::cumprod(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return apply<Cumprod>({wrap_dim(dim, shape().size(), "cumprod")}, *this);
}
Tensor cumsum(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return x.cumsum(dim);
}
Tensor cumprod(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return x.cumprod(dim);
}

}  // namespace grapnel
