/// Two-dimensional convolution and its two gradients. Each of the three is bilinear, and the
/// gradients of each are the other two, so everything can be differentiated any number of times.
// N batch, C input channels, O output channels; sizes are [vertical, horizontal].
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"

namespace grapnel {

struct ConvAttrs {
  Shape stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int64_t groups = 1;
  Shape size = {};  ///< of the result in the gradients: [h, w] of x, or of the kernel
  static void visit(auto& self, auto&& v) {
    v("stride", self.stride);
    v("padding", self.padding);
    v("dilation", self.dilation);
    v("groups", self.groups);
    v.argument("size", self.size);
  }
};

/// x [N, C, h, w] with weight [O, C / groups, kh, kw]; the optional bias [O] is added to the
/// finished result.
struct Conv2d : Call<3> {
  static constexpr std::string_view name = "conv2d";
  using Attrs = ConvAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static ProductForm product(const Attrs&) { return {.operand = 0, .addend = 2, .trailing = 2}; }
  static constexpr SaveMask saves[] = {input(1), input(0), 0};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

/// The gradient of conv2d with respect to x, from that of the result and the weight.
struct Conv2dBackwardInput : Call<2> {
  static constexpr std::string_view name = "conv2d_backward_input";
  using Attrs = ConvAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static ProductForm product(const Attrs&) { return {.operand = 0}; }
  static constexpr SaveMask saves[] = {input(1), input(0)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

/// The gradient of conv2d with respect to the weight, from x and that of the result.
struct Conv2dBackwardWeight : Call<2> {
  static constexpr std::string_view name = "conv2d_backward_weight";
  using Attrs = ConvAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask saves[] = {input(1), input(0)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

using ConvOps = OpList<Conv2d, Conv2dBackwardInput, Conv2dBackwardWeight>;

}  // namespace grapnel
