/// Joining tensors along a dimension, an old one or a new one.
#pragma once

#include "grapnel/ops/defs/view.h"

namespace grapnel {

/// One after the other along `dim`. The sizes tell the gradient where each input lies; a single one
/// stands for all.
struct CatAttrs {
  int64_t dim = 0;
  Shape sizes;
  int64_t size_of(int i) const { return sizes.size() == 1 ? sizes[0] : sizes[i]; }
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v.argument("sizes", self.sizes);
  }
};
struct Cat : Call<-1> {
  static constexpr std::string_view name = "cat";
  using Attrs = CatAttrs;
  /// Fails unless shapes differ in `dim` only.
  static void check_joinable(Inputs in, int dim);
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples() {
    return {
        sample({sample_tensor({2, 3}), sample_tensor({2, 1}, 1, 2)}, Attrs{1, {3, 1}}),
        sample({sample_tensor({2, 3}), sample_tensor({2, 3}, 1, 2), sample_tensor({2, 3}, 2, 3)},
               Attrs{0, {2}})};
  }
};

/// Side by side along a new dimension.
struct Stack : Call<-1> {
  static constexpr std::string_view name = "stack";
  using Attrs = DimAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples() {
    return {sample({sample_tensor({2, 3}), sample_tensor({2, 3}, 1, 2)}, Attrs{1})};
  }
};

using JoinOps = OpList<Cat, Stack>;

}  // namespace grapnel
