#include "grapnel/ops/defs/softmax.h"

#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/kernels/row.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// Elements of work below which a second thread does not pay; an exponential costs more than a sum.
constexpr int64_t kWork = 16384;

/// Calls rows(first, count, scratch) for all rows of n values, on one thread or several.
template <class Rows>
void for_rows(const Tensor& x, int64_t n, const Rows& rows) {
  base::parallel_for(x.numel() / n, std::max<int64_t>(1, kWork / n),
                     [&](int64_t begin, int64_t end) {
                       const auto scratch = std::make_unique_for_overwrite<char[]>(
                           static_cast<size_t>(kernels::row_scratch(n)) * x.element_size());
                       rows(begin, end - begin, scratch.get());
                     });
}
/// Where row r of a dense tensor begins.
char* row(const Tensor& t, int64_t r, int64_t n) {
  return t.impl().data() + r * n * static_cast<int64_t>(t.element_size());
}
bool lies_in_rows(const Tensor& x, int64_t dim) {
  return x.dim() == 0 || contiguous_strides(x.shape())[static_cast<int>(dim)] == 1;
}
int64_t row_length(const Tensor& x, int64_t dim) { return x.dim() == 0 ? 1 : x.size(dim); }

template <class D>
void compute(Tensor& out, std::same_as<Tensor> auto const&... inputs) {
  const Tensor* list[] = {&inputs...};
  run_pointwise(op_of<D>, list, nullptr, {&out, 1});
}
template <class D>
Tensor reduced(const Tensor& x, int64_t dim) {
  Shape sizes = x.shape();
  sizes[static_cast<int>(dim)] = 1;
  Tensor out(TensorImpl::empty(sizes, x.dtype()));
  const Tensor* list[] = {&x};
  const ReduceAttrs attrs{.dims = {dim}, .keepdim = true};
  run_reduction(op_of<D>, list, &attrs, {&out, 1});
  return out;
}

/// Along a dimension whose values do not lie side by side the steps are done one after another,
/// each over whole rows of memory. The row kernels promise the same bits.
void run_steps(const Tensor& x, Tensor y, int64_t dim, bool log_of_it) {
  compute<Sub>(y, x, reduced<Amax>(x, dim));
  if (log_of_it) {
    Tensor e(TensorImpl::empty(x.shape(), x.dtype()));
    compute<Exp>(e, y);
    Tensor sums = reduced<Sum>(e, dim);
    compute<Log>(sums, sums);
    compute<Sub>(y, y, sums);
  } else {
    compute<Exp>(y, y);
    compute<Div>(y, y, reduced<Sum>(y, dim));
  }
}

void run_softmax(const Tensor& x, const Tensor& out, int64_t dim, bool log_of_it) {
  if (x.numel() == 0) return;
  const Compute type = compute_type(x.dtype());
  const Tensor wide = dense(x, dtype_of(type)), y = result_buffer(out, dtype_of(type));
  const kernels::RowKernels& kernels = kernels::row_kernels(type);
  if (lies_in_rows(x, dim)) {
    const int64_t n = row_length(x, dim);
    for_rows(wide, n, [&](int64_t r, int64_t rows, void* scratch) {
      (log_of_it ? kernels.log_softmax
                 : kernels.softmax)({rows, n, row(wide, r, n), row(y, r, n), scratch});
    });
  } else {
    run_steps(wide, y, dim, log_of_it);
  }
  store_result(out, y);
}

void run_backward_steps(const Tensor& g, const Tensor& y, Tensor gx, int64_t dim, bool log_of_it) {
  if (log_of_it) {
    compute<Exp>(gx, y);
    compute<Mul>(gx, gx, reduced<Sum>(g, dim));
    compute<Sub>(gx, g, gx);
  } else {
    compute<Mul>(gx, g, y);
    Tensor part(TensorImpl::empty(y.shape(), y.dtype()));
    compute<Mul>(part, y, reduced<Sum>(gx, dim));
    compute<Sub>(gx, gx, part);
  }
}

void run_softmax_backward(Inputs in, const Tensor& out, int64_t dim, bool log_of_it) {
  if (out.numel() == 0) return;
  const Compute type = compute_type(out.dtype());
  const Tensor g = dense(*in[0], dtype_of(type)), y = dense(*in[1], dtype_of(type)),
               gx = result_buffer(out, dtype_of(type));
  const kernels::RowKernels& kernels = kernels::row_kernels(type);
  if (lies_in_rows(y, dim)) {
    const int64_t n = row_length(y, dim);
    for_rows(y, n, [&](int64_t r, int64_t rows, void* scratch) {
      (log_of_it ? kernels.log_softmax_backward : kernels.softmax_backward)(
          {rows, n, row(g, r, n), row(y, r, n), row(gx, r, n), scratch});
    });
  } else {
    run_backward_steps(g, y, gx, dim, log_of_it);
  }
  store_result(out, gx);
}

void infer_like(std::string_view op, const Tensor& x, const SoftmaxAttrs& a, Specs& out) {
  check(is_floating(x.dtype()), op, ": not defined for ", x.dtype(),
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

template <class D>
Tensor along(const Tensor& x, int64_t dim) {
  return apply<D>({.dim = wrap_dim(dim, static_cast<int>(x.dim()), D::name.data())}, x);
}

}  // namespace

void Softmax::infer(Inputs in, const Attrs& a, Specs& out) { infer_like(name, *in[0], a, out); }
void Softmax::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_softmax(*in[0], out[0], attrs.dim, false);
}
Grads Softmax::grad(const Saved& s, const Tensor& g) {
  return {apply<SoftmaxBackward>(s.attrs<Attrs>(), g, s.output())};
}
Samples Softmax::samples() {
  return {sample({sample_tensor({2, 3})}, Attrs{.dim = 1}),
          sample({sample_tensor({3, 2, 2})}, Attrs{.dim = 0}),
          sample({sample_tensor({})}, Attrs{.dim = 0})};
}

void LogSoftmax::infer(Inputs in, const Attrs& a, Specs& out) { infer_like(name, *in[0], a, out); }
void LogSoftmax::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_softmax(*in[0], out[0], attrs.dim, true);
}
Grads LogSoftmax::grad(const Saved& s, const Tensor& g) {
  return {apply<LogSoftmaxBackward>(s.attrs<Attrs>(), g, s.output())};
}
Samples LogSoftmax::samples() { return Softmax::samples(); }

void SoftmaxBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  infer_backward(name, in, a, out);
}
void SoftmaxBackward::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_softmax_backward(in, out[0], attrs.dim, false);
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
Samples SoftmaxBackward::samples() { return backward_samples(); }

void LogSoftmaxBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  infer_backward(name, in, a, out);
}
void LogSoftmaxBackward::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_softmax_backward(in, out[0], attrs.dim, true);
}
Grads LogSoftmaxBackward::grad(const Saved& s, const Tensor& h) {
  const int64_t dim = s.attrs<Attrs>().dim;
  const Tensor weighted = h * exp(s.input(1));
  return {s.needs(0) ? h - weighted.sum(dim, true) : Tensor(),
          s.needs(1) ? -weighted * s.input(0).sum(dim, true) : Tensor()};
}
Samples LogSoftmaxBackward::samples() { return backward_samples(); }

Tensor softmax(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return softmax(autocast::wide(x), dim);
  return along<Softmax>(x, dim);
}
Tensor log_softmax(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return log_softmax(autocast::wide(x), dim);
  return along<LogSoftmax>(x, dim);
}
Tensor Tensor::softmax(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::softmax(*this, dim);
}
Tensor Tensor::log_softmax(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::log_softmax(*this, dim);
}

}  // namespace grapnel
