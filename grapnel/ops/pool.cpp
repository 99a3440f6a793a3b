/// Pooling: shape rules, gradients and samples.
#include "grapnel/ops/defs/pool.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {

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
  check_as<TypeError>(is_floating(dtype), op, ": not defined for ", dtype,
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
Grads MaxPool2d::grad(const Saved& s, const Grads& g) {
  return {apply<MaxPool2dBackward>(with_size_of(s.attrs<Attrs>(), s.input_shape(0)), g[0],
                                   s.output(1))};
}
Samples MaxPool2d::samples() { return {sample({sample_tensor({1, 2, 4, 5})}, sample_attrs())}; }

void MaxPool2dBackward::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &g = *in[0], &index = *in[1];
  check(index.dtype() == kInt64 && index.shape() == g.shape(), name,
        ": the places must be i64 and of the gradient's shape ", g.shape(), ", got ", index.dtype(),
        index.shape(), ".");
  out.push_back({image_shape(g, attrs, name), g.dtype()});
}
Grads MaxPool2dBackward::grad(const Saved& s, const Tensor& g) {
  const Tensor index = s.input(1);
  return {g.flatten(-2).gather(-1, index.flatten(-2)).view(index.shape()), Tensor()};
}
Samples MaxPool2dBackward::samples() {
  PoolAttrs attrs;
  attrs.kernel = attrs.stride = attrs.size = {2, 2};
  const Tensor index = from_vector<int64_t>({3, 1}, {1, 2, 1, 1});
  return {sample({sample_tensor({1, 2, 1, 1}), index}, attrs)};
}

// --- average ---

void AvgPool2d::infer(Inputs in, const Attrs& attrs, Specs& out) {
  out.push_back({pooled_shape(in[0]->shape(), in[0]->dtype(), attrs, name), in[0]->dtype()});
}
Grads AvgPool2d::grad(const Saved& s, const Tensor& g) {
  return {apply<AvgPool2dBackward>(with_size_of(s.attrs<Attrs>(), s.input_shape(0)), g)};
}
Samples AvgPool2d::samples() { return {sample({sample_tensor({1, 2, 4, 5})}, sample_attrs())}; }

void AvgPool2dBackward::infer(Inputs in, const Attrs& attrs, Specs& out) {
  out.push_back({image_shape(*in[0], attrs, name), in[0]->dtype()});
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

}  // namespace grapnel
