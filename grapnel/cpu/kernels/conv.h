/// Two-dimensional convolution on raw memory: forward and the two gradients.
///
/// The bits of a result depend on the parameters alone: work is cut by a fixed rule, each part is
/// computed by one thread, and partial sums of the weights' gradient are added in one fixed order.
#pragma once

#include "grapnel/cpu/kernels/tile.h"

namespace grapnel::kernels {

enum class ConvType { f32, f64 };

// n batch, c input channels, h x w input, o output channels, kh x kw kernel. Pairs are {vertical,
// horizontal}.
struct ConvParams {
  ConvType type = ConvType::f32;
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t o = 0, kh = 0, kw = 0;
  int64_t stride[2] = {1, 1};
  int64_t pad[2] = {0, 0};
  int64_t dilation[2] = {1, 1};
  int64_t groups = 1;

  int64_t out_h() const { return (h + 2 * pad[0] - dilation[0] * (kh - 1) - 1) / stride[0] + 1; }
  int64_t out_w() const { return (w + 2 * pad[1] - dilation[1] * (kw - 1) - 1) / stride[1] + 1; }
};

// All arrays are dense: src [n, c, h, w], weights [o, c / groups, kh, kw], dst [n, o, out_h,
// out_w]. The caller has checked that groups divides c and o, that the kernel fits the padded
// input, and that strides and dilations are at least 1. Outputs overlap no input. f32 is oneDNN's;
// f64 is a matrix product over unfolded patches.
//
// `done` hears of every part of the output when it is finished. With `fill` the first operand is
// not in memory: fill(tile) computes images of it in tile.local; only where comes_in_images says
// so.

void conv2d(const ConvParams& p, const void* src, const void* weights, void* dst, TileFn done = {},
            TileFn fill = {});

/// The gradient with respect to src.
void conv2d_backward_data(const ConvParams& p, const void* grad_dst, const void* weights,
                          void* grad_src, TileFn done = {}, TileFn fill = {});

/// Whether images of the first operand can be computed once each, forward or for the gradient of
/// src.
bool comes_in_images(const ConvParams& p, bool forward);

/// The gradient with respect to the weights.
void conv2d_backward_weights(const ConvParams& p, const void* src, const void* grad_dst,
                             void* grad_weights);

}  // namespace grapnel::kernels
