/// Views: other shapes and strides over the same memory, and the ops that carry gradients back
/// through them.
#pragma once

#include <vector>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/internal.h"

namespace grapnel {

struct SizesAttrs {
  Shape sizes;
  static void visit(auto& self, auto&& v) { v.argument("sizes", self.sizes); }
};
struct DimAttrs {
  int64_t dim = 0;
  static void visit(auto& self, auto&& v) { v("dim", self.dim); }
};
struct DimsAttrs {
  Shape dims;
  static void visit(auto& self, auto&& v) { v("dims", self.dims); }
};

/// The same elements in the same order, in another shape.
struct Reshape : View {
  static constexpr std::string_view name = "view";
  using Attrs = SizesAttrs;
  static Geometry geometry(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Tensor& g) { return {g.reshape(s.input_shape(0))}; }
  static Samples samples() {
    return {sample({sample_tensor({4, 6})}, Attrs{{2, 2, 3, 2}}),
            sample({sample_tensor({})}, Attrs{{1, 1}})};
  }
};

struct TransposeAttrs {
  int64_t dim0 = 0, dim1 = 0;
  static void visit(auto& self, auto&& v) {
    v("dim0", self.dim0);
    v("dim1", self.dim1);
  }
};
struct Transpose : View {
  static constexpr std::string_view name = "transpose";
  using Attrs = TransposeAttrs;
  static Geometry geometry(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Tensor& g) {
    const Attrs& a = s.attrs<Attrs>();
    return {g.transpose(a.dim0, a.dim1)};
  }
  static Samples samples() { return {sample({sample_tensor({2, 3, 4})}, Attrs{0, 2})}; }
};

/// Dimension i of the result is dimension dims[i] of the input.
struct Permute : View {
  static constexpr std::string_view name = "permute";
  using Attrs = DimsAttrs;
  static Geometry geometry(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples() { return {sample({sample_tensor({2, 3, 4})}, Attrs{{2, 0, 1}})}; }
};

/// Repeats dimensions of size 1, and puts new ones in front, without copying.
struct Expand : View {
  static constexpr std::string_view name = "expand";
  using Attrs = SizesAttrs;
  static Geometry geometry(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Tensor& g) { return {g.sum_to_size(s.input_shape(0))}; }
  static Samples samples() {
    return {sample({sample_tensor({3, 1})}, Attrs{{2, 3, 4}}),
            sample({sample_tensor({})}, Attrs{{2, 2}})};
  }
};

/// Leaves out the listed dimensions, all of size 1.
struct Squeeze : View {
  static constexpr std::string_view name = "squeeze";
  using Attrs = DimsAttrs;
  static Geometry geometry(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Tensor& g) { return {g.reshape(s.input_shape(0))}; }
  static Samples samples() { return {sample({sample_tensor({1, 3, 1, 2})}, Attrs{{0, 2}})}; }
};

struct Unsqueeze : View {
  static constexpr std::string_view name = "unsqueeze";
  using Attrs = DimAttrs;
  static Geometry geometry(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Tensor& g) { return {g.squeeze(s.attrs<Attrs>().dim)}; }
  static Samples samples() {
    return {sample({sample_tensor({2, 3})}, Attrs{1}), sample({sample_tensor({})}, Attrs{0})};
  }
};

// --- views of a part ---
// `part` finds where the view lies in a tensor that lies as `whole`.

/// Zeros in the shape of the viewed tensor, with the gradient where the view V lies.
template <class V>
struct PartBackward : Call<1> {
  static constexpr std::string_view name = V::backward_name;
  struct Attrs {
    Shape sizes;
    typename V::Attrs view;
    static void visit(auto& self, auto&& v) {
      v.argument("sizes", self.sizes);
      V::Attrs::visit(self.view, v);
    }
  };
  static void infer(Inputs in, const Attrs& a, Specs& out) {
    checked_numel(a.sizes, name.data());
    const Shape part = V::part({a.sizes, contiguous_strides(a.sizes), 0}, a.view).sizes;
    check(in[0]->shape() == part, name, ": the gradient has shape ", in[0]->shape(),
          ", but the part of ", a.sizes, " has ", part, ".");
    out.push_back({a.sizes, in[0]->dtype()});
  }
  static Outputs lower(Inputs in, const Attrs& a) {
    const Tensor whole = zeros(a.sizes, in[0]->options());
    apply<V>(a.view, whole).copy_(*in[0]);
    return {whole};
  }
  static Grads grad(const Saved& s, const Tensor& g) {
    return {apply<V>(s.attrs<Attrs>().view, g)};
  }
  static Samples samples() {
    Samples out;
    for (const Sample& forward : V::samples()) {
      const auto& view = *static_cast<const typename V::Attrs*>(forward.attrs.get());
      const Tensor& x = forward.inputs[0];
      const Shape part = V::part(geometry_of(x), view).sizes;
      out.push_back(sample({sample_tensor(part)}, Attrs{x.shape(), view}));
    }
    return out;
  }
};
template <class V>
struct PartView : View {
  static Grads grad(const Saved& s, const Tensor& g) {
    using Attrs = typename V::Attrs;
    return {apply<PartBackward<V>>({s.input_shape(0), s.attrs<Attrs>()}, g)};
  }
};

/// Every step-th index of `dim` in [start, end), all in range.
struct SliceAttrs {
  int64_t dim = 0, start = 0, end = 0, step = 1;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v.argument("start", self.start);
    v.argument("end", self.end);
    v("step", self.step);
  }
};
struct SliceView : PartView<SliceView> {
  static constexpr std::string_view name = "slice", backward_name = "slice_backward";
  using Attrs = SliceAttrs;
  static Geometry part(const Geometry& whole, const Attrs& a);
  static Geometry geometry(const Tensor& x, const Attrs& a) { return part(geometry_of(x), a); }
  static Samples samples() {
    return {sample({sample_tensor({3, 5})}, Attrs{1, 1, 5, 2}),
            sample({sample_tensor({3, 5})}, Attrs{0, 1, 2, 1})};
  }
};

struct SelectAttrs {
  int64_t dim = 0, index = 0;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v.argument("index", self.index);
  }
};
struct Select : PartView<Select> {
  static constexpr std::string_view name = "select", backward_name = "select_backward";
  using Attrs = SelectAttrs;
  static Geometry part(const Geometry& whole, const Attrs& a);
  static Geometry geometry(const Tensor& x, const Attrs& a) { return part(geometry_of(x), a); }
  static Samples samples() {
    return {sample({sample_tensor({3, 4})}, Attrs{1, 2}),
            sample({sample_tensor({3})}, Attrs{0, 0})};
  }
};

/// The elements whose dim2 index exceeds their dim1 index by `offset`, as a new last dimension.
struct DiagonalAttrs {
  int64_t offset = 0, dim1 = 0, dim2 = 1;
  static void visit(auto& self, auto&& v) {
    v.argument("offset", self.offset);
    v("dim1", self.dim1);
    v("dim2", self.dim2);
  }
};
struct Diagonal : PartView<Diagonal> {
  static constexpr std::string_view name = "diagonal", backward_name = "diagonal_backward";
  using Attrs = DiagonalAttrs;
  static Geometry part(const Geometry& whole, const Attrs& a);
  static Geometry geometry(const Tensor& x, const Attrs& a) { return part(geometry_of(x), a); }
  static Samples samples() {
    return {sample({sample_tensor({3, 4})}, Attrs{1, 0, 1}),
            sample({sample_tensor({3, 2, 4})}, Attrs{-1, 0, 2})};
  }
};

// --- several views at once ---

/// One view per index of `dim`. Outputs without a gradient count as zero.
struct Unbind : View {
  static constexpr std::string_view name = "unbind";
  using Attrs = DimAttrs;
  static std::vector<Geometry> views(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Grads& g);
  static Samples samples() {
    return {sample({sample_tensor({3, 2})}, Attrs{0}), sample({sample_tensor({2, 3})}, Attrs{1})};
  }
};

/// Neighbouring ranges of `dim` of equal size; the last may be shorter.
struct SplitAttrs {
  int64_t dim = 0, size = 1;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v.argument("size", self.size);
  }
};
struct Split : View {
  static constexpr std::string_view name = "split";
  using Attrs = SplitAttrs;
  static std::vector<Geometry> views(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Grads& g);
  static Samples samples() { return {sample({sample_tensor({5, 2})}, Attrs{0, 2})}; }
};

/// Neighbouring ranges of `dim`; the sizes add up to the whole.
struct SplitSizesAttrs {
  int64_t dim = 0;
  Shape sizes;
  static void visit(auto& self, auto&& v) {
    v("dim", self.dim);
    v.argument("sizes", self.sizes);
  }
};
struct SplitWithSizes : View {
  static constexpr std::string_view name = "split_with_sizes";
  using Attrs = SplitSizesAttrs;
  static std::vector<Geometry> views(const Tensor& x, const Attrs& a);
  /// Fails unless the sizes add up to that of `dim`.
  static void check_split_sizes(IntArrayRef sizes, const Shape& whole, int dim);
  static Grads grad(const Saved& s, const Grads& g);
  static Samples samples() { return {sample({sample_tensor({2, 6})}, Attrs{1, {1, 3, 2}})}; }
};

// --- views by memory layout ---

struct StridedAttrs {
  Geometry base, view;
  static void visit(auto& self, auto&& v) {
    v.argument("base_sizes", self.base.sizes);
    v.argument("base_strides", self.base.strides);
    v.argument("base_offset", self.base.offset);
    v.argument("sizes", self.view.sizes);
    v.argument("strides", self.view.strides);
    v.argument("offset", self.view.offset);
  }
};

/// One past the last element of the storage that `g` touches. Fails where that is beyond all
/// memory.
int64_t end_of(const Geometry& g, const char* op);

struct AsStrided : View {
  static constexpr std::string_view name = "as_strided";
  using Attrs = StridedAttrs;
  static Geometry geometry(const Tensor& x, const Attrs& a);
  static Grads grad(const Saved& s, const Tensor& g) {
    const Attrs& a = s.attrs<Attrs>();
    return {as_strided_backward(g, a.base, a.view)};
  }
  static Samples samples();
};
struct AsStridedBackward : Call<1> {
  static constexpr std::string_view name = "as_strided_backward";
  using Attrs = StridedAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};
struct AsStridedCopy : Call<1> {
  static constexpr std::string_view name = "as_strided_copy";
  using Attrs = StridedAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g) {
    const Attrs& a = s.attrs<Attrs>();
    return {as_strided_backward(g, a.base, a.view)};
  }
  static Samples samples();
};
struct AsStridedScatter : Call<2> {
  static constexpr std::string_view name = "as_strided_scatter";
  using Attrs = StridedAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples();
};

using ViewOps = OpList<Reshape, Transpose, Permute, Expand, Squeeze, Unsqueeze, SliceView,
                       PartBackward<SliceView>, Select, PartBackward<Select>, Diagonal,
                       PartBackward<Diagonal>, Unbind, Split, SplitWithSizes, AsStrided,
                       AsStridedBackward, AsStridedCopy, AsStridedScatter>;

}  // namespace grapnel
