/// Pooling on the CPU.
#include "grapnel/ops/defs/pool.h"

#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/kernels/pool.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

namespace {

template <class T>
T* data(const Tensor& t) {
  return reinterpret_cast<T*>(t.impl().host());
}

/// `image` and `pooled` are the shapes on the two sides of a pooling.
kernels::PoolParams params(const Shape& image, const Shape& pooled, const PoolAttrs& attrs) {
  kernels::PoolParams p;
  p.planes = 1;
  const int rank = image.size();
  for (int i = 0; i < rank - 2; ++i) p.planes *= image[i];
  for (int d = 0; d < 2; ++d) {
    p.in[d] = image[rank - 2 + d];
    p.out[d] = pooled[rank - 2 + d];
    p.kernel[d] = attrs.kernel[d];
    p.stride[d] = attrs.stride[d];
    p.pad[d] = attrs.padding[d];
    p.dilation[d] = attrs.dilation[d];
  }
  p.count_include_pad = attrs.count_include_pad;
  return p;
}

/// Calls fn with memory for `out` and its type: f64 as it is, the other floating types in f32,
/// rounded once.
template <class Fn>
void in_compute_type(const Tensor& out, const Fn& fn) {
  if (out.numel() == 0) return;
  const DType wide = out.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor buffer = result_buffer(out, wide);
  if (wide == kFloat64) fn.template operator()<double>(buffer);
  else fn.template operator()<float>(buffer);
  store_result(out, buffer);
}

}  // namespace

template <>
void run<MaxPool2d>(Inputs in, const MaxPool2d::Attrs& attrs, std::span<Tensor> out) {
  in_compute_type(out[0], [&]<class T>(const Tensor& y) {
    kernels::max_pool<T>(params(in[0]->shape(), y.shape(), attrs),
                         data<T>(dense(*in[0], dtype_v<T>)), data<T>(y), data<int64_t>(out[1]));
  });
}

template <>
void run<MaxPool2dBackward>(Inputs in, const MaxPool2dBackward::Attrs& attrs,
                            std::span<Tensor> out) {
  const Tensor places = dense(*in[1], kInt64);
  check_index_bounds(places, attrs.size[0] * attrs.size[1], in[1]->dim() - 1,
                     MaxPool2dBackward::name);
  in_compute_type(out[0], [&]<class T>(const Tensor& gx) {
    kernels::max_pool_backward<T>(params(gx.shape(), in[0]->shape(), attrs),
                                  data<T>(dense(*in[0], dtype_v<T>)), data<int64_t>(places),
                                  data<T>(gx));
  });
}

template <>
void run<AvgPool2d>(Inputs in, const AvgPool2d::Attrs& attrs, std::span<Tensor> out) {
  in_compute_type(out[0], [&]<class T>(const Tensor& y) {
    kernels::avg_pool<T>(params(in[0]->shape(), y.shape(), attrs),
                         data<T>(dense(*in[0], dtype_v<T>)), data<T>(y));
  });
}

template <>
void run<AvgPool2dBackward>(Inputs in, const AvgPool2dBackward::Attrs& attrs,
                            std::span<Tensor> out) {
  in_compute_type(out[0], [&]<class T>(const Tensor& gx) {
    kernels::avg_pool_backward<T>(params(gx.shape(), in[0]->shape(), attrs),
                                  data<T>(dense(*in[0], dtype_v<T>)), data<T>(gx));
  });
}

}  // namespace grapnel::cpu
