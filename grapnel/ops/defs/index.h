/// Reading and writing at positions that are data.
///
/// Two forms. `gather` and `scatter` have one position per element. All others (`index_select`,
/// `embedding`, `x.index({...})`, masks) have one position per row: a tensor of numbers that count
/// through some dimensions of x in row-major order, and the remaining dimensions come along whole.
/// Note [Row index] says how the result is laid out.
#pragma once

#include "grapnel/ops/defs/view.h"

namespace grapnel {

// --- one position per element ---

/// y[i][j] = x[index[i][j]][j] for dim 0, and so on.
struct Gather : Call<2> {
  static constexpr std::string_view name = "gather";
  static constexpr bool refuses_values = true;
  using Attrs = DimAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

/// Zeros of shape `sizes` with the gradient added at its positions.
struct GatherBackwardAttrs {
  int64_t dim = 0;
  Shape sizes;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v.argument("sizes", self.sizes);
  }
};
struct GatherBackward : Call<2> {
  static constexpr std::string_view name = "gather_backward";
  using Attrs = GatherBackwardAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {gather(g, s.attrs<Attrs>().dim, s.input(1)), Tensor()};
  }
  static Samples samples();
};

/// x with y[index[i][j]][j] = source[i][j] for dim 0, and so on. Inputs x, index, source; of equal
/// positions the last wins.
struct Scatter : Call<3> {
  static constexpr std::string_view name = "scatter";
  static constexpr bool refuses_values = true;
  using Attrs = DimAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(1), 0, input(1)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

/// The same with += instead of =, in the order of the source.
struct ScatterAdd : Call<3> {
  static constexpr std::string_view name = "scatter_add";
  static constexpr bool refuses_values = true;
  using Attrs = DimAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {0, 0, input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {g, Tensor(), s.needs(2) ? gather(g, s.attrs<Attrs>().dim, s.input(1)) : Tensor()};
  }
  static Samples samples();
};

// --- one position per row ---

/// `dims`: the dimensions that positions count through, ascending. `skip`: a position whose
/// gradient is dropped, or -1.
struct IndexAttrs {
  Shape dims;
  int64_t skip = -1;
  static void visit(auto& self, auto&& v) {
    v("dims", self.dims);
    v("skip", self.skip);
  }
};
/// Inputs x and positions.
struct Index : Call<2> {
  static constexpr std::string_view name = "index";
  static constexpr bool refuses_values = true;
  using Attrs = IndexAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};
struct IndexSelect : Index {
  static constexpr std::string_view name = "index_select";
};
struct Embedding : Index {
  static constexpr std::string_view name = "embedding";
};

/// Zeros of shape `sizes` with the gradient's rows added at their positions, in order.
struct IndexBackwardAttrs {
  Shape sizes, dims;
  int64_t skip = -1;
  static void visit(auto& self, auto&& v) {
    v.argument("sizes", self.sizes);
    v("dims", self.dims);
    v("skip", self.skip);
  }
};
struct IndexBackward : Call<2> {
  static constexpr std::string_view name = "index_backward";
  using Attrs = IndexBackwardAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

/// x with rows of `values` written at positions, or added to what is there. Inputs x, positions,
/// values.
struct IndexPutAttrs {
  Shape dims;
  bool accumulate = false;
  static void visit(auto& self, auto&& v) {
    v("dims", self.dims);
    v("accumulate", self.accumulate);
  }
};
struct IndexPut : Call<3> {
  static constexpr std::string_view name = "index_put";
  static constexpr bool refuses_values = true;
  using Attrs = IndexPutAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static constexpr SaveMask saves[] = {input(1), 0, input(1)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};
struct IndexAdd : IndexPut {
  static constexpr std::string_view name = "index_add";
};

// --- positions ---

/// One number from an index per dimension: the inputs broadcast, negative ones count from the end
/// of their dimension.
struct RavelAttrs {
  Shape sizes, dims;  ///< of the indexed dimensions, and which they are
  static void visit(auto& self, auto&& v) {
    v.argument("sizes", self.sizes);
    v("dims", self.dims);
  }
};
struct RavelIndex : Call<-1> {
  static constexpr std::string_view name = "ravel_index";
  static constexpr bool refuses_values = true;
  using Attrs = RavelAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Samples samples();
};

/// The positions of the `count` elements that are not zero: counted through in row-major order, or
/// one column per dimension.
struct CountAttrs {
  int64_t count = 0;
  static void visit(auto& self, auto&& v) { v.argument("count", self.count); }
};
struct MaskPositions : Call<1> {
  static constexpr std::string_view name = "mask_positions";
  using Attrs = CountAttrs;
  static void infer(Inputs, const Attrs& a, Specs& out) { out.push_back({{a.count}, kInt64}); }
  static Samples samples();
};
struct Nonzero : Call<1> {
  static constexpr std::string_view name = "nonzero";
  using Attrs = CountAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out) {
    out.push_back({{a.count, in[0]->dim()}, kInt64});
  }
  static Samples samples();
};

/// A new last dimension with a one at the index and zeros elsewhere.
struct OneHot : Call<1> {
  static constexpr std::string_view name = "one_hot";
  static constexpr bool refuses_values = true;
  using Attrs = CountAttrs;  ///< the number of classes
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

// --- triangles ---

struct TriangleAttrs {
  int64_t diagonal = 0;
  static void visit(auto& self, auto&& v) { v("diagonal", self.diagonal); }
};
/// The last two dimensions on and below a diagonal; zeros above.
struct Tril : Call<1> {
  static constexpr std::string_view name = "tril";
  using Attrs = TriangleAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g) { return {g.tril(s.attrs<Attrs>().diagonal)}; }
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples() { return {sample({sample_tensor({2, 3, 4})}, Attrs{1})}; }
};
/// The last two dimensions on and above a diagonal; zeros below.
struct Triu : Call<1> {
  static constexpr std::string_view name = "triu";
  using Attrs = TriangleAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g) { return {g.triu(s.attrs<Attrs>().diagonal)}; }
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples() { return {sample({sample_tensor({3, 4})}, Attrs{-1})}; }
};

using IndexOps = OpList<Gather, GatherBackward, Scatter, ScatterAdd, Index, IndexSelect, Embedding,
                        IndexBackward, IndexPut, IndexAdd, RavelIndex, MaskPositions, Nonzero,
                        OneHot, Tril, Triu>;

/// How many of the other dimensions come before those of the positions.
int place_of(const Shape& dims);
/// Leaves out `dims`.
Shape without(Shape values, const Shape& dims);
/// x at rows `positions` of `dims`, and its counterpart for writing.
Tensor index_rows(const Tensor& x, const Shape& dims, const Tensor& positions);

}  // namespace grapnel
