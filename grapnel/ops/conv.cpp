/// Convolutions: shape rules, gradients, which are convolutions again, and samples.
#include "grapnel/ops/defs/conv.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

void check_types(std::string_view op, const Tensor& a, const Tensor& b, const char* names) {
  check_as<TypeError>(is_floating(a.dtype()), op, ": not defined for ", a.dtype(),
                      ".\nConvert first: x.to(kFloat32).");
  check_as<TypeError>(a.dtype() == b.dtype(), op, ": ", names, " must have one type, got ",
                      a.dtype(), " and ", b.dtype(), ".");
}

/// The shape of the result for x and weight of these shapes.
Shape result_shape(const Shape& x, const Shape& weight, const ConvAttrs& attrs) {
  check(x.size() == 4 && weight.size() == 4,
        "conv2d: x must be [batch, channels, height, width] and weight [out_channels, channels / "
        "groups, ",
        "height, width], got shapes ", x, " and ", weight, ".");
  attrs::pair("conv2d", "stride", attrs.stride, 1);
  attrs::pair("conv2d", "dilation", attrs.dilation, 1);
  attrs::pair("conv2d", "padding", attrs.padding, 0);
  const int64_t g = attrs.groups;
  check(g >= 1 && weight[0] % g == 0,
        "conv2d: groups must divide the number of output channels: weight is ", weight, ", groups ",
        g, ".");
  const int64_t channels = checked_mul(weight[1], g, "conv2d");
  check(x[1] == channels, "conv2d: x has ", x[1], " channels, weight takes ", channels,
        " (weight is ", weight, ", groups ", g, ").");
  Shape out{x[0], weight[0]};
  for (int i = 0; i < 2; ++i) {
    const int64_t kernel = weight[2 + i];
    check(kernel >= 1, "conv2d: the kernel is empty: weight is ", weight, ".");
    const int64_t reach =
                      checked_mul(attrs.dilation[i], kernel - 1, "conv2d, reach of the kernel") + 1,
                  room = checked_add(x[2 + i], 2 * attrs.padding[i], "conv2d, size with padding");
    check(reach <= room, "conv2d: the kernel reaches over ", reach, " elements, but x has ", room,
          " with padding in dimension ", 2 + i, " (x is ", x, ", weight ", weight,
          ").\nUse more padding or a smaller kernel.");
    out.push_back((room - reach) / attrs.stride[i] + 1);
  }
  return out;
}

/// Fails unless g can be the gradient of conv2d for x and weight of these shapes.
void check_gradient(std::string_view op, const Tensor& g, const Shape& x, const Shape& weight,
                    const ConvAttrs& attrs) {
  checked_numel(x, op.data());
  checked_numel(weight, op.data());
  const Shape result = result_shape(x, weight, attrs);
  check(g.shape() == result, op, ": x ", x, " and weight ", weight, " give ", result,
        ", but the gradient has shape ", g.shape(), ".");
}
void check_four_dims(std::string_view op, const Tensor& a, const Tensor& b,
                     const ConvAttrs& attrs) {
  check(a.dim() == 4 && b.dim() == 4, op, ": tensors with 4 dimensions are expected, got shapes ",
        a.shape(), " and ", b.shape(), ".");
  attrs::pair(op, "the size", attrs.size, 0);
  check(attrs.groups >= 1, op, ": groups must be at least 1, got ", attrs.groups, ".");
}

Tensor backward_input(const Tensor& g, const Tensor& weight, ConvAttrs attrs, const Shape& size) {
  attrs.size = size;
  return apply<Conv2dBackwardInput>(attrs, g, weight);
}
Tensor backward_weight(const Tensor& x, const Tensor& g, ConvAttrs attrs, const Shape& size) {
  attrs.size = size;
  return apply<Conv2dBackwardWeight>(attrs, x, g);
}
Tensor forward(const Tensor& x, const Tensor& weight, ConvAttrs attrs) {
  attrs.size = {};
  return apply<Conv2d>(attrs, x, weight, Tensor());
}
Shape window(const Shape& s) { return {s[2], s[3]}; }

ConvAttrs sample_attrs() {
  ConvAttrs attrs;
  attrs.stride = {2, 1};
  attrs.padding = {1, 0};
  attrs.dilation = {1, 2};
  attrs.groups = 2;
  return attrs;
}

}  // namespace

// --- forward ---

void Conv2d::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &x = *in[0], &weight = *in[1], &bias = *in[2];
  check_types(name, x, weight, "x and weight");
  const Shape sizes = result_shape(x.shape(), weight.shape(), attrs);
  if (bias.defined())
    check(bias.dim() == 1 && bias.size(0) == weight.size(0) && bias.dtype() == x.dtype(),
          "conv2d: bias must be ", x.dtype(), "[", weight.size(0),
          "], one number per output channel, got ", bias.dtype(), bias.shape(), ".");
  out.push_back({sizes, x.dtype()});
}

Grads Conv2d::grad(const Saved& s, const Tensor& g) {
  const Attrs& attrs = s.attrs<Attrs>();
  return {s.needs(0) ? backward_input(g, s.input(1), attrs, window(s.input_shape(0))) : Tensor(),
          s.needs(1) ? backward_weight(s.input(0), g, attrs, window(s.input_shape(1))) : Tensor(),
          s.needs(2) ? g.sum({0, 2, 3}) : Tensor()};
}

Samples Conv2d::samples() {
  return {
      sample({sample_tensor({2, 2, 4, 3}), sample_tensor({3, 2, 3, 2}, -1, 1), sample_tensor({3})},
             Attrs{}),
      sample({sample_tensor({1, 2, 4, 5}), sample_tensor({4, 1, 3, 2}, -1, 1), Tensor()},
             sample_attrs())};
}

// --- gradients ---

void Conv2dBackwardInput::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &g = *in[0], &weight = *in[1];
  check_types(name, g, weight, "the gradient and weight");
  check_four_dims(name, g, weight, attrs);
  const Shape x{g.size(0), checked_mul(weight.size(1), attrs.groups, name.data()), attrs.size[0],
                attrs.size[1]};
  check_gradient(name, g, x, weight.shape(), attrs);
  out.push_back({x, g.dtype()});
}
Grads Conv2dBackwardInput::grad(const Saved& s, const Tensor& g) {
  const Attrs& attrs = s.attrs<Attrs>();
  return {s.needs(0) ? forward(g, s.input(1), attrs) : Tensor(),
          s.needs(1) ? backward_weight(g, s.input(0), attrs, window(s.input_shape(1))) : Tensor()};
}
Samples Conv2dBackwardInput::samples() {
  Attrs plain, odd = sample_attrs();
  plain.size = {4, 3};
  odd.size = {4, 5};
  return {sample({sample_tensor({2, 3, 2, 2}), sample_tensor({3, 2, 3, 2}, -1, 1)}, plain),
          sample({sample_tensor({1, 4, 2, 3}), sample_tensor({4, 1, 3, 2}, -1, 1)}, odd)};
}

void Conv2dBackwardWeight::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &x = *in[0], &g = *in[1];
  check_types(name, x, g, "x and the gradient");
  check_four_dims(name, x, g, attrs);
  const Shape weight{g.size(1), x.size(1) / attrs.groups, attrs.size[0], attrs.size[1]};
  check_gradient(name, g, x.shape(), weight, attrs);
  out.push_back({weight, g.dtype()});
}
Grads Conv2dBackwardWeight::grad(const Saved& s, const Tensor& g) {
  const Attrs& attrs = s.attrs<Attrs>();
  return {s.needs(0) ? backward_input(s.input(1), g, attrs, window(s.input_shape(0))) : Tensor(),
          s.needs(1) ? forward(s.input(0), g, attrs) : Tensor()};
}
Samples Conv2dBackwardWeight::samples() {
  Attrs plain, odd = sample_attrs();
  plain.size = {3, 2};
  odd.size = {3, 2};
  return {sample({sample_tensor({2, 2, 4, 3}), sample_tensor({2, 3, 2, 2}, -1, 1)}, plain),
          sample({sample_tensor({1, 2, 4, 5}), sample_tensor({1, 4, 2, 3}, -1, 1)}, odd)};
}

}  // namespace grapnel
