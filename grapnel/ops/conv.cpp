#include "grapnel/ops/defs/conv.h"

#include <cstring>

#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/kernels/conv.h"
#include "grapnel/ops/kernels/table.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/tiled.h"

namespace grapnel {

namespace {

// --- raw memory ---

/// Sizes from the shapes of x and weight.
kernels::ConvParams params(const Shape& x, const Shape& weight, const ConvAttrs& attrs,
                           DType dtype) {
  kernels::ConvParams p;
  p.type = dtype == kFloat64 ? kernels::ConvType::f64 : kernels::ConvType::f32;
  p.n = x[0], p.c = x[1], p.h = x[2], p.w = x[3];
  p.o = weight[0], p.kh = weight[2], p.kw = weight[3];
  for (int i = 0; i < 2; ++i) {
    p.stride[i] = attrs.stride[i];
    p.pad[i] = attrs.padding[i];
    p.dilation[i] = attrs.dilation[i];
  }
  p.groups = attrs.groups;
  return p;
}

DType wide_type(const Tensor& out) { return out.dtype() == kFloat64 ? kFloat64 : kFloat32; }

/// Runs a kernel of two operands: f64 as it is, the other floating types in f32, rounded once.
/// kernel(params, a, b, result)
template <class Kernel>
void compute(Kernel kernel, const Tensor& a, const Tensor& b, const Tensor& buffer, const Shape& x,
             const Shape& weight, const ConvAttrs& attrs) {
  // Without values or channels there is nothing to sum.
  if (a.numel() == 0 || b.numel() == 0)
    std::memset(buffer.impl().data(), 0, static_cast<size_t>(buffer.nbytes()));
  else
    kernel(params(x, weight, attrs, buffer.dtype()), dense(a, buffer.dtype()).impl().data(),
           dense(b, buffer.dtype()).impl().data(), buffer.impl().data());
}

using TiledKernel = void (*)(const kernels::ConvParams& p, const void* a, const void* b,
                             void* result, kernels::TileFn done, kernels::TileFn fill);

/// The same for kernels that tell of finished tiles, which are rounded one by one.
void compute_tiles(TiledKernel kernel, const Tensor& a, const Tensor& b, const Tensor& out,
                   const Shape& x, const Shape& weight, const ConvAttrs& attrs,
                   const kernels::TileFn& done, const kernels::TileFn& fill) {
  if (out.numel() == 0) return;
  const DType wide = wide_type(out);
  const Tensor buffer = result_buffer(out, wide);
  const bool dense_out = out.is_contiguous(), rounds = dense_out && out.dtype() != wide;
  const auto store =
      kernels::table().store[static_cast<int>(out.dtype())][static_cast<int>(compute_type(wide))];
  const auto from_size = static_cast<int64_t>(element_size(wide)),
             to_size = static_cast<int64_t>(element_size(out.dtype()));
  const auto finished = [&](const kernels::Tile& tile) {
    if (rounds)
      for (int64_t i = 0, at = tile.begin; i < tile.rows; ++i, at += tile.pitch)
        store(buffer.impl().data() + at * from_size, out.impl().data() + at * to_size, 1,
              tile.cols);
    done(tile);
  };
  if (fill) {
    kernel(params(x, weight, attrs, wide), nullptr, dense(b, wide).impl().data(),
           buffer.impl().data(), finished, fill);
    return;
  }
  const bool empty = a.numel() == 0 || b.numel() == 0;
  compute([&](const kernels::ConvParams& p, const void* left, const void* right,
              void* result) { kernel(p, left, right, result, finished, {}); },
          a, b, buffer, x, weight, attrs);
  if (empty) finished({0, 1, out.numel(), out.numel()});
  if (!dense_out) store_result(out, buffer);
}

/// Adds the numbers of `bias`, which is dense, to a tile of whole channels of `out`, while that is
/// in the cache. The images of a channel follow each other, since its number is repeated for the
/// kernel; small channels go together.
void add_bias(const Tensor& bias, const Tensor& out, const kernels::Tile& tile) {
  constexpr int64_t block = 1024;
  alignas(64) char repeated[block * sizeof(double)];
  const int c = static_cast<int>(compute_type(out.dtype()));
  const auto repeat = kernels::table().load[static_cast<int>(out.dtype())][c];
  const auto add = kernels::table().pointwise[op_of<Add>.index][c];
  const auto size = static_cast<int64_t>(element_size(out.dtype()));
  const int64_t pixels = out.size(2) * out.size(3), channels = tile.cols / pixels,
                first = tile.begin / pixels, together = std::max<int64_t>(1, block / pixels);
  for (int64_t channel = 0; channel < channels; channel += together) {
    const int64_t count = std::min(together, channels - channel), length = count * pixels;
    for (int64_t k = 0; k < count; ++k)
      repeat(bias.impl().data() + (first + channel + k) % out.size(1) * size, 0,
             repeated + k * pixels * size, std::min(block, pixels));
    for (int64_t image = 0; image < tile.rows; ++image) {
      char* const line =
          out.impl().data() + (tile.begin + image * tile.pitch + channel * pixels) * size;
      for (int64_t i = 0; i < length; i += block) {
        char* const values = line + i * size;
        const void* operands[] = {values, repeated};
        add(operands, values, std::min(block, length - i));
      }
    }
  }
}

// --- what fits ---

void check_types(std::string_view op, const Tensor& a, const Tensor& b, const char* names) {
  check(is_floating(a.dtype()), op, ": not defined for ", a.dtype(),
        ".\nConvert first: x.to(kFloat32).");
  check(a.dtype() == b.dtype(), op, ": ", names, " must have one type, got ", a.dtype(), " and ",
        b.dtype(), ".");
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
        "conv2d: groups must divide the number of output channels: weight is ", weight,
        ", groups ", g, ".");
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

void run_conv2d(Inputs in, const void* attrs, const Tensor& out, kernels::TileFn done,
                kernels::TileFn fill) {
  compute_tiles(kernels::conv2d, *in[0], *in[1], out, in[0]->shape(), in[1]->shape(),
                *static_cast<const ConvAttrs*>(attrs), done, fill);
}
void run_conv2d_backward_input(Inputs in, const void* attrs, const Tensor& out,
                               kernels::TileFn done, kernels::TileFn fill) {
  compute_tiles(kernels::conv2d_backward_data, *in[0], *in[1], out, out.shape(), in[1]->shape(),
                *static_cast<const ConvAttrs*>(attrs), done, fill);
}

bool conv2d_in_pieces(Inputs in, const void* attrs, const Tensor& out) {
  return kernels::comes_in_images(
      params(in[0]->shape(), in[1]->shape(), *static_cast<const ConvAttrs*>(attrs), wide_type(out)),
      true);
}
bool conv2d_backward_input_in_pieces(Inputs in, const void* attrs, const Tensor& out) {
  return kernels::comes_in_images(
      params(out.shape(), in[1]->shape(), *static_cast<const ConvAttrs*>(attrs), wide_type(out)),
      false);
}

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

void Conv2d::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  const Tensor& bias = *in[2];
  if (!bias.defined()) return run_conv2d(in, &attrs, out[0]);
  if (out[0].is_contiguous() && out[0].dtype() == wide_type(out[0])) {
    const Tensor numbers = dense(bias, bias.dtype());
    return run_conv2d(in, &attrs, out[0],
                      [&](const kernels::Tile& tile) { add_bias(numbers, out[0], tile); });
  }
  run_conv2d(in, &attrs, out[0]);
  const Tensor column =
      make_alias(bias, {{bias.size(0), 1, 1}, {bias.stride(0), 0, 0}, bias.storage_offset()});
  const Tensor* list[] = {&out[0], &column};
  run_pointwise(op_of<Add>, list, nullptr, out);
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
void Conv2dBackwardInput::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  run_conv2d_backward_input(in, &attrs, out[0]);
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
void Conv2dBackwardWeight::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  const Tensor buffer = result_buffer(out[0], wide_type(out[0]));
  compute(kernels::conv2d_backward_weights, *in[0], *in[1], buffer, in[0]->shape(), out[0].shape(),
          attrs);
  store_result(out[0], buffer);
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

// --- functions ---

namespace {

Shape pair_of(IntArrayRef values, const char* what) {
  check(values.size() == 1 || values.size() == 2, "conv2d: ", what,
        " takes one number or [vertical, horizontal], got ", values, ".");
  return {values[0], values[values.size() - 1]};
}
int64_t one_of(IntArrayRef values, const char* what) {
  check(values.size() == 1, "conv1d: ", what, " takes one number, got ", values, ".");
  return values[0];
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
              IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  GRAPNEL_CALL_SITE;
  if (autocast::lowers(x, weight)) [[unlikely]]
    return conv2d(autocast::lower(x), autocast::lower(weight), autocast::lower(bias), stride,
                  padding, dilation, groups);
  ConvAttrs attrs;
  attrs.stride = pair_of(stride, "stride");
  attrs.padding = pair_of(padding, "padding");
  attrs.dilation = pair_of(dilation, "dilation");
  attrs.groups = groups;
  if (x.dim() == 3) return apply<Conv2d>(attrs, x.unsqueeze(0), weight, bias).squeeze(0);
  return apply<Conv2d>(attrs, x, weight, bias);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
              IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  GRAPNEL_CALL_SITE;
  check((x.dim() == 2 || x.dim() == 3) && weight.dim() == 3,
        "conv1d: x must be [batch, channels, length] or [channels, length] and weight ",
        "[out_channels, channels / groups, length], got shapes ", x.shape(), " and ",
        weight.shape(), ".");
  // A picture of height 1.
  return conv2d(x.unsqueeze(-2), weight.unsqueeze(2), bias, {1, one_of(stride, "stride")},
                {0, one_of(padding, "padding")}, {1, one_of(dilation, "dilation")}, groups)
      .squeeze(-2);
}

}  // namespace grapnel
