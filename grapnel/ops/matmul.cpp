/// Matrix products: shape rules, gradients, which are products again, and samples; what they are cast to.
#include "grapnel/ops/defs/matmul.h"

#include <cmath>

#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/autocast.h"

namespace grapnel {

Autocast::Autocast(DType dtype) : before_(Autocast::dtype()) {
  check(dtype == kBFloat16 || dtype == kFloat16 || dtype == kFloat32,
        "Autocast: products can be computed in bf16 or f16 (or f32, which casts nothing), not in ",
        dtype, ".");
  this_context.modes.autocast = dtype;
}

namespace {

void check_types(std::string_view op, const Tensor& a, const Tensor& b) {
  check_as<TypeError>(a.dtype() == b.dtype(), op, ": operands must have one type, got ", a.dtype(),
                      " and ", b.dtype(), ".\nConvert one: b.to(", a.dtype(), ").");
  check_as<TypeError>(a.dtype() != kBool, op,
                      ": not defined for bool.\nConvert first: x.to(kInt64).");
}

void check_inner(std::string_view op, const Tensor& a, const Tensor& b) {
  const int64_t left = a.size(-1), right = b.dim() == 1 ? b.size(0) : b.size(-2);
  check(left == right, op, ": inner sizes differ: a is ", a.shape(), ", b is ", b.shape(), " (",
        left, " against ", right, ").",
        b.dim() > 1 && b.size(-1) == left ? "\nIf b holds one row per output, pass transpose(b)."
                                          : "");
}

/// All matrices of a batch on top of each other. The number of rows is spelled out: -1 is ambiguous
/// when there are none.
Tensor stacked(const Tensor& t) {
  int64_t rows = 1;
  for (int i = 0; i < t.dim() - 1; ++i) rows *= t.shape()[i];
  return t.reshape({rows, t.size(-1)});
}

// --- gradients ---

/// The gradient of a product, with the dimensions that vectors left out.
Tensor matrix_gradient(Tensor g, int a_rank, int b_rank) {
  if (b_rank == 1) g = g.unsqueeze(-1);
  if (a_rank == 1) g = g.unsqueeze(-2);
  return g;
}

/// Where a was broadcast the result has more dimensions than a; the engine sums them.
Tensor gradient_of_a(const Tensor& g, int a_rank, const Tensor& b, bool a_by_columns) {
  const Tensor full = matrix_gradient(g, a_rank, static_cast<int>(b.dim()));
  const Tensor right = b.dim() == 1 ? b.unsqueeze(1) : b;
  const Tensor ga = a_by_columns ? matmul(right, full.mT()).mT() : matmul(full, right.mT());
  return a_rank == 1 ? ga.squeeze(-2) : ga;
}

Tensor gradient_of_b(const Tensor& g, const Tensor& a, int b_rank, bool b_by_columns) {
  Tensor full = matrix_gradient(g, static_cast<int>(a.dim()), b_rank);
  Tensor left = a.dim() == 1 ? a.unsqueeze(0) : a;
  if (b_rank <= 2 && left.dim() > 2) {
    // One matrix b served the whole batch: the batch joins the inner dimension.
    left = stacked(left);
    full = stacked(full);
  }
  const Tensor gb = b_by_columns ? matmul(full.mT(), left).mT() : matmul(left.mT(), full);
  return b_rank == 1 ? gb.squeeze(-1) : gb;
}

}  // namespace

// --- matmul ---

void MatMul::infer(Inputs in, const Attrs&, Specs& out) {
  const Tensor &a = *in[0], &b = *in[1];
  check(a.dim() > 0 && b.dim() > 0, "matmul: operands need at least one dimension, got shapes ",
        a.shape(), " and ", b.shape(), ".\nTo scale by a number use a * b.");
  check_types("matmul", a, b);
  check_inner("matmul", a, b);
  Shape a_batch = a.shape(), b_batch = b.shape();
  a_batch.resize(std::max(0, a_batch.size() - 2));
  b_batch.resize(std::max(0, b_batch.size() - 2));
  Shape sizes = broadcast_shapes(a_batch, b_batch, "matmul, batch dimensions");
  if (a.dim() > 1) sizes.push_back(a.size(-2));
  if (b.dim() > 1) sizes.push_back(b.size(-1));
  out.push_back({sizes, a.dtype()});
}

Grads MatMul::grad(const Saved& s, const Tensor& g) {
  const Attrs& attrs = s.attrs<Attrs>();
  return {s.needs(0) ? gradient_of_a(g, s.input_shape(0).size(), s.input(1), attrs.a_by_columns)
                     : Tensor(),
          s.needs(1) ? gradient_of_b(g, s.input(0), s.input_shape(1).size(), attrs.b_by_columns)
                     : Tensor()};
}

Samples MatMul::samples() {
  Samples samples;
  for (const auto& [a, b] : {std::pair<Shape, Shape>{{2, 3}, {3, 4}},
                             {{3}, {3}},
                             {{2, 3}, {3}},
                             {{3}, {2, 3, 4}},
                             {{2, 2, 3}, {3, 2}},
                             {{2, 1, 2, 3}, {2, 3, 2}}})
    samples.push_back(sample({sample_tensor(a), sample_tensor(b, -1, 1)}, Attrs{}));
  samples.push_back(sample({sample_tensor({3, 2}).t(), sample_tensor({4, 3}, -1, 1).t()},
                           Attrs{.a_by_columns = true, .b_by_columns = true}));
  return samples;
}

// --- addmm ---

void Addmm::infer(Inputs in, const Attrs& attrs, Specs& out) {
  const Tensor &x = *in[0], &a = *in[1], &b = *in[2];
  check(a.dim() == 2 && b.dim() == 2, "addmm: needs two matrices, got shapes ", a.shape(), " and ",
        b.shape(), ".");
  check_types("addmm", a, b);
  check_types("addmm", a, x);
  check_inner("addmm", a, b);
  const Shape sizes{a.size(0), b.size(1)};
  check(broadcast_shapes(sizes, x.shape(), "addmm") == sizes, "addmm: x is ", x.shape(),
        " and does not broadcast to the product's shape ", sizes, ".");
  check(is_floating(a.dtype()) ||
            (std::trunc(attrs.beta) == attrs.beta && std::trunc(attrs.alpha) == attrs.alpha),
        "addmm: beta and alpha must be whole numbers for ", a.dtype(), ", got ", attrs.beta,
        " and ", attrs.alpha, ".");
  out.push_back({sizes, a.dtype()});
}

Grads Addmm::grad(const Saved& s, const Tensor& g) {
  const Attrs& attrs = s.attrs<Attrs>();
  const Tensor scaled = attrs.alpha == 1 ? g : g * attrs.alpha;
  return {s.needs(0) ? (attrs.beta == 1 ? g : g * attrs.beta) : Tensor(),
          s.needs(1) ? gradient_of_a(scaled, 2, s.input(2), attrs.a_by_columns) : Tensor(),
          s.needs(2) ? gradient_of_b(scaled, s.input(1), 2, attrs.b_by_columns) : Tensor()};
}

Samples Addmm::samples() {
  Samples samples;
  samples.push_back(
      sample({sample_tensor({4}), sample_tensor({2, 3}), sample_tensor({3, 4}, -1, 1)}, Attrs{}));
  samples.push_back(
      sample({sample_tensor({2, 1}), sample_tensor({2, 3}), sample_tensor({4, 3}, -1, 1).t()},
             Attrs{.beta = 0.5, .alpha = -2, .a_by_columns = false, .b_by_columns = true}));
  return samples;
}

}  // namespace grapnel
