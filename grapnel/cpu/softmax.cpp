/// Softmax on the CPU: by rows where they lie side by side, else in steps.
#include "grapnel/ops/defs/softmax.h"

#include <algorithm>
#include <memory>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/kernels/row.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/cpu/run.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::cpu {

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
  return t.impl().host() + r * n * static_cast<int64_t>(t.element_size());
}
bool lies_in_rows(const Tensor& x, int64_t dim) {
  return x.dim() == 0 || contiguous_strides(x.shape())[static_cast<int>(dim)] == 1;
}
int64_t row_length(const Tensor& x, int64_t dim) { return x.dim() == 0 ? 1 : x.size(dim); }

template <class D>
Tensor reduced(const Tensor& x, int64_t dim) {
  Shape sizes = x.shape();
  sizes[static_cast<int>(dim)] = 1;
  Tensor out(TensorImpl::empty(sizes, x.dtype(), kCPU));
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
    Tensor e(TensorImpl::empty(x.shape(), x.dtype(), kCPU));
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
  const kernels::RowKernels& kernels = kernels::table().row[static_cast<int>(type)];
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
    Tensor part(TensorImpl::empty(y.shape(), y.dtype(), kCPU));
    compute<Mul>(part, y, reduced<Sum>(gx, dim));
    compute<Sub>(gx, gx, part);
  }
}

void run_softmax_backward(Inputs in, const Tensor& out, int64_t dim, bool log_of_it) {
  if (out.numel() == 0) return;
  const Compute type = compute_type(out.dtype());
  const Tensor g = dense(*in[0], dtype_of(type)), y = dense(*in[1], dtype_of(type)),
               gx = result_buffer(out, dtype_of(type));
  const kernels::RowKernels& kernels = kernels::table().row[static_cast<int>(type)];
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

}  // namespace

template <>
void run<Softmax>(Inputs in, const Softmax::Attrs& attrs, std::span<Tensor> out) {
  run_softmax(*in[0], out[0], attrs.dim, false);
}
template <>
void run<LogSoftmax>(Inputs in, const LogSoftmax::Attrs& attrs, std::span<Tensor> out) {
  run_softmax(*in[0], out[0], attrs.dim, true);
}
template <>
void run<SoftmaxBackward>(Inputs in, const SoftmaxBackward::Attrs& attrs, std::span<Tensor> out) {
  run_softmax_backward(in, out[0], attrs.dim, false);
}
template <>
void run<LogSoftmaxBackward>(Inputs in, const LogSoftmaxBackward::Attrs& attrs,
                             std::span<Tensor> out) {
  run_softmax_backward(in, out[0], attrs.dim, true);
}

}  // namespace grapnel::cpu
