#include "grapnel/ops/defs/softmax.h"

#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/kernels/row.h"
#include "grapnel/ops/kernels/table.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// Elements of work below which a second thread does not pay; an exponential costs more than a sum.
constexpr int64_t kWork = 16384;

using RowFn = void (*)(const kernels::SoftmaxArgs&);

/// A tensor as lines along one dimension. A dense line is handed to the kernel as it is, others are staged.
class Lines {
 public:
  Lines(const Tensor& x, const Tensor& y, int64_t dim, RowFn kernel) : x_(x), y_(y), kernel_(kernel) {
    if (x.dim() > 0) n_ = x.size(dim);
    for (int64_t i = dim + 1; i < x.dim(); ++i) inner_ *= x.size(i);
    const int compute = static_cast<int>(compute_type(x.dtype()));
    load_ = kernels::table().load[static_cast<int>(x.dtype())][compute];
    store_ = kernels::table().store[static_cast<int>(x.dtype())][compute];
    wide_ = static_cast<int64_t>(element_size(dtype_of(compute_type(x.dtype()))));
    stored_ = static_cast<int64_t>(x.element_size());
  }

  void run() const {
    base::parallel_for(x_.numel() / n_, std::max<int64_t>(1, kWork / n_), [&](int64_t begin, int64_t end) {
      const bool direct = inner_ == 1 && wide_ == stored_;
      const int64_t staged = direct ? 0 : 2 * n_;
      const auto memory = std::make_unique_for_overwrite<char[]>(static_cast<size_t>((kernels::row_scratch(n_) + staged) * wide_));
      char* const scratch = memory.get();
      if (direct) return kernel_({end - begin, n_, at(x_, begin), at(y_, begin), scratch});
      char* const from = scratch + kernels::row_scratch(n_) * wide_;
      char* const to = from + n_ * wide_;
      for (int64_t line = begin; line < end; ++line) {
        load_(at(x_, line), inner_, from, n_);
        kernel_({1, n_, from, to, scratch});
        store_(to, at(y_, line), inner_, n_);
      }
    });
  }

 private:
  char* at(const Tensor& t, int64_t line) const {
    return t.impl().data() + (line / inner_ * n_ * inner_ + line % inner_) * stored_;
  }

  const Tensor &x_, &y_;
  RowFn kernel_;
  int64_t n_ = 1, inner_ = 1, wide_, stored_;
  kernels::LoadFn load_;
  kernels::StoreFn store_;
};

void run_lines(const Tensor& x, const Tensor& y, int64_t dim, RowFn kernels::RowKernels::*kernel) {
  if (x.numel() == 0) return;
  Lines(dense(x, x.dtype()), y, dim, kernels::row_kernels(compute_type(x.dtype())).*kernel).run();
}

void infer_like(std::string_view op, const Tensor& x, Specs& out) {
  check(is_floating(x.dtype()), op, ": not defined for ", x.dtype(), ".\nConvert first: x.to(kFloat32).");
  out.push_back({x.shape(), x.dtype()});
}

template <class D>
Tensor along(const Tensor& x, int64_t dim) {
  return apply<D>({.dim = wrap_dim(dim, static_cast<int>(x.dim()), D::name.data())}, x);
}

}  // namespace

void Softmax::infer(Inputs in, const Attrs&, Specs& out) { infer_like(name, *in[0], out); }
void Softmax::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_lines(*in[0], out[0], attrs.dim, &kernels::RowKernels::softmax);
}
Samples Softmax::samples() {
  return {sample({sample_tensor({2, 3})}, Attrs{.dim = 1}), sample({sample_tensor({3, 2, 2})}, Attrs{.dim = 0}),
          sample({sample_tensor({})}, Attrs{.dim = 0})};
}

void LogSoftmax::infer(Inputs in, const Attrs&, Specs& out) { infer_like(name, *in[0], out); }
void LogSoftmax::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_lines(*in[0], out[0], attrs.dim, &kernels::RowKernels::log_softmax);
}
Samples LogSoftmax::samples() { return Softmax::samples(); }

Tensor softmax(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return along<Softmax>(x, dim);
}
Tensor log_softmax(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
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
