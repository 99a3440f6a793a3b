/// Convolutions on the CPU: narrow results are rounded tile by tile, and the bias is added to a
/// tile while it is in the cache.
#include "grapnel/ops/defs/conv.h"

#include <algorithm>
#include <cstring>

#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/kernels/conv.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/run.h"
#include "grapnel/cpu/tiled.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::cpu {

namespace {

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
    std::memset(buffer.impl().host(), 0, static_cast<size_t>(buffer.nbytes()));
  else
    kernel(params(x, weight, attrs, buffer.dtype()), dense(a, buffer.dtype()).impl().host(),
           dense(b, buffer.dtype()).impl().host(), buffer.impl().host());
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
        store(buffer.impl().host() + at * from_size, out.impl().host() + at * to_size, 1,
              tile.cols);
    done(tile);
  };
  if (fill) {
    kernel(params(x, weight, attrs, wide), nullptr, dense(b, wide).impl().host(),
           buffer.impl().host(), finished, fill);
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
      repeat(bias.impl().host() + (first + channel + k) % out.size(1) * size, 0,
             repeated + k * pixels * size, std::min(block, pixels));
    for (int64_t image = 0; image < tile.rows; ++image) {
      char* const line =
          out.impl().host() + (tile.begin + image * tile.pitch + channel * pixels) * size;
      for (int64_t i = 0; i < length; i += block) {
        char* const values = line + i * size;
        const void* operands[] = {values, repeated};
        add(operands, values, std::min(block, length - i));
      }
    }
  }
}

void run_conv2d(Inputs in, const void* attrs, const Tensor& out, kernels::TileFn done = {},
                kernels::TileFn fill = {}) {
  compute_tiles(kernels::conv2d, *in[0], *in[1], out, in[0]->shape(), in[1]->shape(),
                *static_cast<const ConvAttrs*>(attrs), done, fill);
}
void run_conv2d_backward_input(Inputs in, const void* attrs, const Tensor& out,
                               kernels::TileFn done = {}, kernels::TileFn fill = {}) {
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

}  // namespace

template <>
Tiles tiles<Conv2d>() {
  return {run_conv2d, conv2d_in_pieces, /*copies_strided=*/true};
}
template <>
Tiles tiles<Conv2dBackwardInput>() {
  return {run_conv2d_backward_input, conv2d_backward_input_in_pieces, /*copies_strided=*/true};
}

template <>
void run<Conv2d>(Inputs in, const Conv2d::Attrs& attrs, std::span<Tensor> out) {
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

template <>
void run<Conv2dBackwardInput>(Inputs in, const Conv2dBackwardInput::Attrs& attrs,
                              std::span<Tensor> out) {
  run_conv2d_backward_input(in, &attrs, out[0]);
}

template <>
void run<Conv2dBackwardWeight>(Inputs in, const Conv2dBackwardWeight::Attrs& attrs,
                               std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  const Tensor buffer = result_buffer(out[0], wide_type(out[0]));
  compute(kernels::conv2d_backward_weights, *in[0], *in[1], buffer, in[0]->shape(), out[0].shape(),
          attrs);
  store_result(out[0], buffer);
}

}  // namespace grapnel::cpu
