/// Sorting, extremes with their positions, and running sums and products along one dimension.
#pragma once

#include "grapnel/ops/defs/view.h"

namespace grapnel {

/// The gradient of an op that picked elements along `dim`: back to where they came from.
Grads picked_grad(const Saved& s, const Grads& g, int64_t dim, bool keeps_dim);

/// Values in order, and the positions they came from. Equal values keep their order; NaN counts as
/// the largest.
struct SortAttrs {
  int64_t dim = 0;
  bool descending = false;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v("descending", self.descending);
  }
};
struct Sort : Call<1> {
  static constexpr std::string_view name = "sort";
  using Attrs = SortAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {output(1)};
  static Grads grad(const Saved& s, const Grads& g) {
    return picked_grad(s, g, s.attrs<Attrs>().dim, true);
  }
  static Samples samples() {
    return {sample({sample_tensor({3, 4})}, Attrs{1, false}),
            sample({sample_tensor({3, 4})}, Attrs{0, true})};
  }
};

/// The first k of the sorted values.
struct TopkAttrs {
  int64_t k = 1, dim = 0;
  bool largest = true;
  static void visit(auto& self, auto&& v) {
    v("k", self.k);
    v("dim", self.dim);
    v("largest", self.largest);
  }
};
struct Topk : Call<1> {
  static constexpr std::string_view name = "topk";
  using Attrs = TopkAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {output(1)};
  static Grads grad(const Saved& s, const Grads& g) {
    return picked_grad(s, g, s.attrs<Attrs>().dim, true);
  }
  static Samples samples() {
    return {sample({sample_tensor({3, 4})}, Attrs{2, 1, true}),
            sample({sample_tensor({3, 4})}, Attrs{2, 0, false})};
  }
};

/// The extreme value along `dim` and its first position; the first NaN wins.
struct ExtremeAttrs {
  int64_t dim = 0;
  bool keepdim = false;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v("keepdim", self.keepdim);
  }
};
struct MaxAlong : Call<1> {
  static constexpr std::string_view name = "max";
  using Attrs = ExtremeAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {output(1)};
  static Grads grad(const Saved& s, const Grads& g) {
    return picked_grad(s, g, s.attrs<Attrs>().dim, s.attrs<Attrs>().keepdim);
  }
  static Samples samples() {
    return {sample({sample_tensor({3, 4})}, Attrs{1, false}),
            sample({sample_tensor({3, 4})}, Attrs{0, true})};
  }
};
struct MinAlong : MaxAlong {
  static constexpr std::string_view name = "min";
  static void infer(Inputs in, const Attrs& a, Specs& out);
};
/// The position alone.
struct Argmax : Call<1> {
  static constexpr std::string_view name = "argmax";
  using Attrs = ExtremeAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Samples samples() { return MaxAlong::samples(); }
};
struct Argmin : Argmax {
  static constexpr std::string_view name = "argmin";
  static void infer(Inputs in, const Attrs& a, Specs& out);
};

// --- running ops ---

/// Forwards: y[i] = x[0] + ... + x[i]. Backwards: y[i] = x[i] + ... + x[n-1]. Each is the other's
/// gradient.
struct CumsumAttrs {
  int64_t dim = 0;
  bool backwards = false;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v("backwards", self.backwards);
  }
};
struct Cumsum : Call<1> {
  static constexpr std::string_view name = "cumsum";
  using Attrs = CumsumAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples() {
    return {sample({sample_tensor({3, 2})}, Attrs{0, false}),
            sample({sample_tensor({3, 2})}, Attrs{1, true})};
  }
};

/// y[i] = x[0] * ... * x[i].
///
/// The gradient divides by nothing, so zeros among the factors are no trouble: with the recurrence
/// r[i] = g[i] + x[i+1] r[i+1] it is y[i-1] * r[i].
struct Cumprod : Call<1> {
  static constexpr std::string_view name = "cumprod";
  using Attrs = DimAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(0) | output()};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

/// Inputs b and a. Forwards: y[i] = b[i] + a[i] y[i-1]. Backwards: y[i] = b[i] + a[i+1] y[i+1]. In
/// b, each is the other's gradient.
struct Recurrence : Call<2> {
  static constexpr std::string_view name = "recurrence";
  using Attrs = CumsumAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(1), input(1) | output()};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples() {
    return {sample({sample_tensor({4, 2}), sample_tensor({4, 2}, -1, 1)}, Attrs{0, false}),
            sample({sample_tensor({2, 4}), sample_tensor({2, 4}, -1, 1)}, Attrs{1, true})};
  }
};

using SortOps = OpList<Sort, Topk, MaxAlong, MinAlong, Argmax, Argmin, Cumsum, Cumprod, Recurrence>;

}  // namespace grapnel
