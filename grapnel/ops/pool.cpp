#include "grapnel/ops/defs/pool.h"

#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/kernels/pool.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

template <class T>
T* data(const Tensor& t) {
  return reinterpret_cast<T*>(t.impl().data());
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

Shape with_window(const Shape& like, int64_t height, int64_t width) {
  Shape s = like;
  s[s.size() - 2] = height;
  s[s.size() - 1] = width;
  return s;
}

int64_t pooled_size(int64_t size, const PoolAttrs& a, int d) {
  const int64_t room = size + 2 * a.padding[d] - a.dilation[d] * (a.kernel[d] - 1) - 1;
  int64_t count = (room + (a.ceil_mode ? a.stride[d] - 1 : 0)) / a.stride[d] + 1;
  // The last window must begin inside the image or its padding on the left.
  if (a.ceil_mode && (count - 1) * a.stride[d] >= size + a.padding[d]) --count;
  return room < 0 && !(a.ceil_mode && room + a.stride[d] > 0) ? 0 : count;
}

void check_window(const PoolAttrs& a, std::string_view op) {
  attrs::pair(op, "kernel_size", a.kernel, 1);
  attrs::pair(op, "stride", a.stride, 1);
  attrs::pair(op, "dilation", a.dilation, 1);
  attrs::pair(op, "padding", a.padding, 0);
  for (int d = 0; d < 2; ++d)
    check(a.padding[d] <= a.kernel[d] / 2, op,
          ": padding must be at most half of kernel_size, got padding ", a.padding,
          ", kernel_size ", a.kernel, ".");
}

/// What a pooling makes of an image of shape `x`.
Shape pooled_shape(const Shape& x, DType dtype, const PoolAttrs& a, std::string_view op) {
  check(is_floating(dtype), op, ": not defined for ", dtype,
        ".\nConvert first: x.to(kFloat32).");
  check(x.size() == 3 || x.size() == 4, op,
        ": x must be [batch, channels, height, width] or [channels, height, width], got shape ", x,
        ".");
  check_window(a, op);
  int64_t size[2];
  for (int d = 0; d < 2; ++d) {
    const int64_t image = x[x.size() - 2 + d];
    size[d] = pooled_size(image, a, d);
    bool fits = size[d] >= 1;
    // With gaps in the window it may fall beside a small image altogether.
    for (int64_t i = 0; fits && a.dilation[d] > 1 && i < size[d]; ++i) {
      int64_t first = i * a.stride[d] - a.padding[d];
      if (first < 0) first += (-first + a.dilation[d] - 1) / a.dilation[d] * a.dilation[d];
      fits = first < image;
    }
    check(fits, op, ": a window of ", a.dilation[d] * (a.kernel[d] - 1) + 1,
          " does not fit an image of ", image, " with padding ", a.padding[d], " (x is ", x,
          ").\nUse a smaller kernel or more padding.");
  }
  return with_window(x, size[0], size[1]);
}

/// The shape of the image whose pooling has the gradient g.
Shape image_shape(const Tensor& g, const PoolAttrs& a, std::string_view op) {
  check(g.dim() >= 2, op, ": the gradient must be an image, got shape ", g.shape(), ".");
  attrs::pair(op, "the size of the image", a.size, 0);
  const Shape image = with_window(g.shape(), a.size[0], a.size[1]);
  const Shape pooled = pooled_shape(image, g.dtype(), a, op);
  check(g.shape() == pooled, op, ": an image of shape ", image, " is pooled to ", pooled,
        ", but the gradient has shape ", g.shape(), ".");
  return image;
}

PoolAttrs with_size_of(PoolAttrs attrs, const Shape& x) {
  attrs.size = {x[x.size() - 2], x[x.size() - 1]};
  return attrs;
}

PoolAttrs sample_attrs() {
  PoolAttrs attrs;
  attrs.kernel = {3, 2};
  attrs.stride = {2, 1};
  attrs.padding = {1, 0};
  attrs.ceil_mode = true;
  attrs.count_include_pad = false;
  return attrs;
}

}  // namespace

// --- max ---

void MaxPool2d::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Shape sizes = pooled_shape(in[0]->shape(), in[0]->dtype(), attrs, name);
  out.push_back({sizes, in[0]->dtype()});
  out.push_back({sizes, kInt64});
}
void MaxPool2d::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  in_compute_type(out[0], [&]<class T>(const Tensor& y) {
    kernels::max_pool<T>(params(in[0]->shape(), y.shape(), attrs),
                         data<T>(dense(*in[0], dtype_v<T>)), data<T>(y), data<int64_t>(out[1]));
  });
}
Grads MaxPool2d::grad(const Saved& s, const Grads& g) {
  return {apply<MaxPool2dBackward>(with_size_of(s.attrs<Attrs>(), s.input_shape(0)), g[0],
                                   s.output(1))};
}
Samples MaxPool2d::samples() { return {sample({sample_tensor({1, 2, 4, 5})}, sample_attrs())}; }

void MaxPool2dBackward::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &g = *in[0], &index = *in[1];
  check(index.dtype() == kInt64 && index.shape() == g.shape(), name,
        ": the places must be i64 and of the gradient's shape ", g.shape(), ", got ",
        index.dtype(), index.shape(), ".");
  out.push_back({image_shape(g, attrs, name), g.dtype()});
}
void MaxPool2dBackward::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  const Tensor places = dense(*in[1], kInt64);
  check_index_bounds(places, attrs.size[0] * attrs.size[1], in[1]->dim() - 1, name);
  in_compute_type(out[0], [&]<class T>(const Tensor& gx) {
    kernels::max_pool_backward<T>(params(gx.shape(), in[0]->shape(), attrs),
                                  data<T>(dense(*in[0], dtype_v<T>)), data<int64_t>(places),
                                  data<T>(gx));
  });
}
Grads MaxPool2dBackward::grad(const Saved& s, const Tensor& g) {
  const Tensor index = s.input(1);
  return {g.flatten(-2).gather(-1, index.flatten(-2)).view(index.shape()), Tensor()};
}
Samples MaxPool2dBackward::samples() {
  PoolAttrs attrs;
  attrs.kernel = attrs.stride = attrs.size = {2, 2};
  Tensor index(TensorImpl::empty({1, 2, 1, 1}, kInt64));
  data<int64_t>(index)[0] = 3;
  data<int64_t>(index)[1] = 1;
  return {sample({sample_tensor({1, 2, 1, 1}), index}, attrs)};
}

// --- average ---

void AvgPool2d::infer(Inputs in, const Attrs& attrs, Specs& out) {
  out.push_back({pooled_shape(in[0]->shape(), in[0]->dtype(), attrs, name), in[0]->dtype()});
}
void AvgPool2d::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  in_compute_type(out[0], [&]<class T>(const Tensor& y) {
    kernels::avg_pool<T>(params(in[0]->shape(), y.shape(), attrs),
                         data<T>(dense(*in[0], dtype_v<T>)), data<T>(y));
  });
}
Grads AvgPool2d::grad(const Saved& s, const Tensor& g) {
  return {apply<AvgPool2dBackward>(with_size_of(s.attrs<Attrs>(), s.input_shape(0)), g)};
}
Samples AvgPool2d::samples() { return {sample({sample_tensor({1, 2, 4, 5})}, sample_attrs())}; }

void AvgPool2dBackward::infer(Inputs in, const Attrs& attrs, Specs& out) {
  out.push_back({image_shape(*in[0], attrs, name), in[0]->dtype()});
}
void AvgPool2dBackward::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  in_compute_type(out[0], [&]<class T>(const Tensor& gx) {
    kernels::avg_pool_backward<T>(params(gx.shape(), in[0]->shape(), attrs),
                                  data<T>(dense(*in[0], dtype_v<T>)), data<T>(gx));
  });
}
Grads AvgPool2dBackward::grad(const Saved& s, const Tensor& g) {
  Attrs attrs = s.attrs<Attrs>();
  attrs.size = {};
  return {apply<AvgPool2d>(attrs, g)};
}
Samples AvgPool2dBackward::samples() {
  PoolAttrs attrs = sample_attrs();
  attrs.size = {4, 5};
  return {sample({sample_tensor({1, 2, 3, 4})}, attrs)};
}

// --- functions ---

namespace {

PoolAttrs pool_attrs(std::string_view op, IntArrayRef kernel, IntArrayRef stride,
                     IntArrayRef padding, IntArrayRef dilation, bool ceil_mode,
                     bool count_include_pad) {
  auto pair = [&](IntArrayRef v, const char* what) -> Shape {
    check(v.size() == 1 || v.size() == 2, op, ": ", what,
          " takes one number or [vertical, horizontal], got ", v, ".");
    return {v[0], v[v.size() - 1]};
  };
  PoolAttrs attrs;
  attrs.kernel = pair(kernel, "kernel_size");
  // Windows lie side by side unless a stride is given.
  attrs.stride = stride.empty() ? attrs.kernel : pair(stride, "stride");
  attrs.padding = pair(padding, "padding");
  attrs.dilation = pair(dilation, "dilation");
  attrs.ceil_mode = ceil_mode;
  attrs.count_include_pad = count_include_pad;
  return attrs;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  GRAPNEL_CALL_SITE;
  return apply_all<MaxPool2d>(
      pool_attrs("max_pool2d", kernel_size, stride, padding, dilation, ceil_mode, true), x)[0];
}
Tensor avg_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  bool ceil_mode, bool count_include_pad) {
  GRAPNEL_CALL_SITE;
  return apply<AvgPool2d>(
      pool_attrs("avg_pool2d", kernel_size, stride, padding, {1}, ceil_mode, count_include_pad), x);
}

}  // namespace grapnel
