#include "grapnel/ops/defs/softmax.h"

#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/kernels/row.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// Elements of work below which a second thread does not pay; an exponential costs more than a sum.
constexpr int64_t kWork = 16384;

using RowFn = void (*)(const kernels::SoftmaxArgs&);

/// Rows of n values each, dense in x and y.
void run_rows(const Tensor& x, const Tensor& y, int64_t n, RowFn kernel) {
  const auto size = static_cast<int64_t>(x.element_size());
  base::parallel_for(x.numel() / n, std::max<int64_t>(1, kWork / n),
                     [&](int64_t begin, int64_t end) {
                       const auto scratch = std::make_unique_for_overwrite<char[]>(
                           static_cast<size_t>(kernels::row_scratch(n) * size));
                       kernel({end - begin, n, x.impl().data() + begin * n * size,
                               y.impl().data() + begin * n * size, scratch.get()});
                     });
}

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
  const kernels::RowKernels& kernel = kernels::row_kernels(type);
  if (x.dim() == 0 || contiguous_strides(x.shape())[static_cast<int>(dim)] == 1)
    run_rows(wide, y, x.dim() == 0 ? 1 : x.size(dim),
             log_of_it ? kernel.log_softmax : kernel.softmax);
  else run_steps(wide, y, dim, log_of_it);
  store_result(out, y);
}

void infer_like(std::string_view op, const Tensor& x, Specs& out) {
  check(is_floating(x.dtype()), op, ": not defined for ", x.dtype(),
        ".\nConvert first: x.to(kFloat32).");
  out.push_back({x.shape(), x.dtype()});
}

template <class D>
Tensor along(const Tensor& x, int64_t dim) {
  return apply<D>({.dim = wrap_dim(dim, static_cast<int>(x.dim()), D::name.data())}, x);
}

}  // namespace

void Softmax::infer(Inputs in, const Attrs&, Specs& out) { infer_like(name, *in[0], out); }
void Softmax::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_softmax(*in[0], out[0], attrs.dim, false);
}
Samples Softmax::samples() {
  return {sample({sample_tensor({2, 3})}, Attrs{.dim = 1}),
          sample({sample_tensor({3, 2, 2})}, Attrs{.dim = 0}),
          sample({sample_tensor({})}, Attrs{.dim = 0})};
}

void LogSoftmax::infer(Inputs in, const Attrs&, Specs& out) { infer_like(name, *in[0], out); }
void LogSoftmax::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_softmax(*in[0], out[0], attrs.dim, true);
}
Samples LogSoftmax::samples() { return Softmax::samples(); }

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
