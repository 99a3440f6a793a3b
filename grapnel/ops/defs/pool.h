/// Two-dimensional pooling: the largest or the average value of each window of an image.
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// Pairs are [vertical, horizontal].
struct PoolAttrs {
  Shape kernel = {1, 1}, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  bool ceil_mode = false, count_include_pad = true;
  Shape size = {};  ///< height and width of the image, in the gradients
  static void visit(auto& self, auto&& v) {
    v("kernel", self.kernel);
    v("stride", self.stride);
    v("padding", self.padding);
    v("dilation", self.dilation);
    v("ceil_mode", self.ceil_mode);
    v("count_include_pad", self.count_include_pad);
    v.argument("size", self.size);
  }
};

/// Gives the largest values, and where in their image they are (row * width + column). The first of
/// equals wins.
struct MaxPool2d : Call<1> {
  static constexpr std::string_view name = "max_pool2d";
  using Attrs = PoolAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask saves[] = {output(1)};
  static Grads grad(const Saved& s, const Grads& g);
  static Samples samples();
};

/// Takes the gradient of the largest values and their places.
struct MaxPool2dBackward : Call<2> {
  static constexpr std::string_view name = "max_pool2d_backward";
  using Attrs = PoolAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask saves[] = {input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

struct AvgPool2d : Call<1> {
  static constexpr std::string_view name = "avg_pool2d";
  using Attrs = PoolAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

struct AvgPool2dBackward : Call<1> {
  static constexpr std::string_view name = "avg_pool2d_backward";
  using Attrs = PoolAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

using PoolOps = OpList<MaxPool2d, MaxPool2dBackward, AvgPool2d, AvgPool2dBackward>;

}  // namespace grapnel
