/// Layer norm and its gradient: fast rows that give the bits of the ops they stand for
/// (cpu/kernels/row.h says which).
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"

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
  static constexpr SaveMask kAll = input(0) | input(1) | output(1) | output(2);
  static constexpr SaveMask saves[] = {kAll, kAll, 0};
  static Grads grad(const Saved& s, const Grads& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

/// Takes the gradient of y, x, mean, 1/deviation and the optional weight. Gives the gradient of x,
/// including what reached y through mean and 1/deviation, and, with a weight, its gradient before
/// the sum over the rows.
struct LayerNormBackward : Call<5> {
  static constexpr std::string_view name = "layer_norm_backward";
  using Attrs = NormAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask kAll = input(0) | input(1) | input(2) | input(3) | input(4);
  static constexpr SaveMask saves[] = {kAll, kAll, kAll, kAll, kAll};
  static Grads grad(const Saved& s, const Grads& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

/// Fails unless the type of x can be normalised.
void check_norm_type(std::string_view op, const Tensor& x);
/// The shape of x with its last `dims` dimensions only.
Shape normalised_shape(const Shape& s, int64_t dims);

using NormOps = OpList<LayerNorm, LayerNormBackward>;

}  // namespace grapnel
