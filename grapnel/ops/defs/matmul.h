/// Products of matrices: matmul with batches and vectors, and addmm, which adds to the finished
/// product.
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// Which operands lie in memory column by column. Their gradients are made the same way round, so
/// that the gradient of a transposed weight is dense again once the transpose is undone.
struct ProductAttrs {
  bool a_by_columns = false, b_by_columns = false;
  static void visit(auto& self, auto&& v) {
    v("a_by_columns", self.a_by_columns);
    v("b_by_columns", self.b_by_columns);
  }
};

/// a @ b by PyTorch's rules: vectors count as one row or one column, dimensions before the last two
/// are batches and broadcast. Narrow floating types are multiplied in f32 and rounded once,
/// integers in i64.
struct MatMul : Call<2> {
  static constexpr std::string_view name = "matmul";
  using Attrs = ProductAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static ProductForm product(const Attrs&) { return {.operand = 0}; }
  static constexpr SaveMask saves[] = {input(1), input(0)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

struct AddmmAttrs {
  double beta = 1, alpha = 1;
  /// Whether one of them is not 1. Keys of compiled graphs leave numbers out, and this decides what
  /// a graph becomes.
  bool scaled = false;
  bool a_by_columns = false, b_by_columns = false;
  static void visit(auto& self, auto&& v) {
    v("beta", self.beta);
    v("alpha", self.alpha);
    v("scaled", self.scaled);
    v("a_by_columns", self.a_by_columns);
    v("b_by_columns", self.b_by_columns);
  }
};

/// beta * x + alpha * (a @ b) for matrices a and b; x broadcasts. The product is finished and
/// rounded before x is added, so the bits are those of matmul followed by add. With beta = 0 x is
/// not read.
struct Addmm : Call<3> {
  static constexpr std::string_view name = "addmm";
  using Attrs = AddmmAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static ProductForm product(const Attrs& a) {
    return a.scaled ? ProductForm() : ProductForm{.operand = 1, .addend = 0};
  }
  static constexpr SaveMask saves[] = {0, input(2), input(1)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

using MatmulOps = OpList<MatMul, Addmm>;

}  // namespace grapnel
