/// Layer norm and its gradient: fast rows that give the bits of the ops they stand for
/// (kernels/row.h says which).
#pragma once

#include "grapnel/ops/define.h"
#include "grapnel/ops/functions.h"

namespace grapnel {

struct NormAttrs {
  int64_t dims = 1;  ///< how many of the last dimensions are normalised together
  double eps = 1e-5;
  static void visit(auto& self, auto&& v) {
    v("dims", self.dims);
    v("eps", self.eps);
  }
};

/// Takes x and an optional weight and bias of the normalised shape; gives y, and mean and
/// 1/deviation of each row for the gradient. Narrow types are computed in f32 and rounded once.
struct LayerNorm : Call<3> {
  static constexpr std::string_view name = "layer_norm";
  using Attrs = NormAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static void run(Inputs in, const Attrs&, std::span<Tensor> out);
  static constexpr SaveMask kAll = input(0) | input(1) | output(1) | output(2);
  static constexpr SaveMask saves[] = {kAll, kAll, 0};
  static Grads grad(const Saved& s, const Grads& g);
  static Samples samples();
};

/// Takes the gradient of y, x, mean, 1/deviation and the optional weight. Gives the gradient of x,
/// including what reached y through mean and 1/deviation, and, with a weight, its gradient before
/// the sum over the rows.
struct LayerNormBackward : Call<5> {
  static constexpr std::string_view name = "layer_norm_backward";
  using Attrs = NormAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static void run(Inputs in, const Attrs&, std::span<Tensor> out);
  static constexpr SaveMask kAll = input(0) | input(1) | input(2) | input(3) | input(4);
  static constexpr SaveMask saves[] = {kAll, kAll, kAll, kAll, kAll};
  static Grads grad(const Saved& s, const Grads& g);
  static Samples samples();
};

using NormOps = OpList<LayerNorm, LayerNormBackward>;

}  // namespace grapnel
