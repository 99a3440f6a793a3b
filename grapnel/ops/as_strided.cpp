/// Views given by memory layout: their rules, and the ops that carry gradients back through them.
#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

int64_t end_of(const Geometry& g, const char* op) {
  check(g.sizes.size() == g.strides.size(), op, ": ", g.sizes.size(), " sizes ", g.sizes, " but ",
        g.strides.size(), " strides ", g.strides, ".\nGive one stride per size.");
  check(g.offset >= 0 && g.offset <= attrs::kFarthest, op, ": the offset must be from 0 to ",
        attrs::kFarthest, ", got ", g.offset, ".");
  int64_t last = g.offset;
  const bool empty = checked_numel(g.sizes, op) == 0;
  for (int i = 0; i < g.sizes.size(); ++i) {
    const int64_t stride = g.strides[i];
    check(stride >= 0, op, ": strides must not be negative, got ", g.strides,
          ".\nUse flip to turn a dimension around.");
    check(stride <= attrs::kFarthest, op, ": stride ", stride, " is larger than any memory.");
    if (!empty) last = checked_add(last, checked_mul(g.sizes[i] - 1, stride, op), op);
  }
  if (empty) return 0;  // nothing lies anywhere
  return checked_add(last, int64_t{1}, op);
}

namespace {

/// Fails unless `t`, the operand called so, has the sizes of `g`.
void check_lies_as(const char* op, const char* operand, const Tensor& t, const Geometry& g) {
  check(t.shape() == g.sizes, op, ": ", operand, " has shape ", t.shape(), ", and ", g.sizes,
        " was expected.");
}
void check_both(const char* op, const StridedAttrs& a) {
  end_of(a.base, op);
  end_of(a.view, op);
}

Tensor sample_storage() { return sample_tensor({12}); }
/// A window of three rows that share elements, and a transposed base.
StridedAttrs overlapping_sample() { return {{{12}, {1}, 0}, {{3, 4}, {2, 1}, 1}}; }
StridedAttrs transposed_sample() { return {{{3, 4}, {1, 3}, 0}, {{2, 3}, {3, 1}, 3}}; }

}  // namespace

Geometry AsStrided::geometry(const Tensor& x, const Attrs& a) {
  // Gradients are carried by the two geometries alone, so the base must lie as it did when the call
  // was recorded.
  check(x.shape() == a.base.sizes && x.impl().strides == a.base.strides &&
            x.storage_offset() == a.base.offset,
        "as_strided: the tensor was expected with shape ", a.base.sizes, ", strides ",
        a.base.strides, " and offset ", a.base.offset, ", but has ", x.shape(), ", ", x.strides(),
        " and ", x.storage_offset(), ".");
  const auto capacity = static_cast<int64_t>(x.impl().storage->bytes() / x.element_size());
  const int64_t end = end_of(a.view, "as_strided");
  check(end <= capacity, "as_strided: size ", a.view.sizes, ", stride ", a.view.strides,
        " and offset ", a.view.offset, " reach element ", end - 1, ", but the storage has ",
        capacity, " elements.");
  return a.view;
}

void AsStridedBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  check_both(name.data(), a);
  check_lies_as(name.data(), "the gradient", *in[0], a.view);
  out.push_back({a.base.sizes, in[0]->dtype()});
}
void AsStridedCopy::infer(Inputs in, const Attrs& a, Specs& out) {
  check_both(name.data(), a);
  check_lies_as(name.data(), "the tensor", *in[0], a.base);
  out.push_back({a.view.sizes, in[0]->dtype()});
}
void AsStridedScatter::infer(Inputs in, const Attrs& a, Specs& out) {
  check_both(name.data(), a);
  check_lies_as(name.data(), "the base", *in[0], a.base);
  check_lies_as(name.data(), "the source", *in[1], a.view);
  out.push_back({a.base.sizes, in[0]->dtype()});
}

Grads AsStridedBackward::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  return {as_strided_copy(g, a.base, a.view)};
}

Grads AsStridedScatter::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  return {s.needs(0) ? as_strided_scatter(g, zeros(a.view.sizes, g.options()), a.base, a.view)
                     : Tensor(),
          s.needs(1) ? as_strided_copy(g, a.base, a.view) : Tensor()};
}

Samples AsStrided::samples() { return {sample({sample_storage()}, overlapping_sample())}; }
Samples AsStridedCopy::samples() {
  return {sample({sample_storage()}, overlapping_sample()),
          sample({sample_tensor({3, 4})}, transposed_sample())};
}
Samples AsStridedBackward::samples() {
  return {sample({sample_tensor({3, 4})}, overlapping_sample()),
          sample({sample_tensor({2, 3})}, transposed_sample())};
}
Samples AsStridedScatter::samples() {
  return {sample({sample_tensor({3, 4}), sample_tensor({2, 3}, 1, 2)}, transposed_sample())};
}

Tensor as_strided_view(const Tensor& base, const Geometry& view) {
  return apply<AsStrided>({geometry_of(base), view}, base);
}
Tensor as_strided_backward(const Tensor& grad, const Geometry& base, const Geometry& view) {
  return apply<AsStridedBackward>({base, view}, grad);
}
Tensor as_strided_copy(const Tensor& x, const Geometry& base, const Geometry& view) {
  return apply<AsStridedCopy>({base, view}, x);
}
Tensor as_strided_scatter(const Tensor& base, const Tensor& source, const Geometry& base_geometry,
                          const Geometry& view) {
  return apply<AsStridedScatter>({base_geometry, view}, base, source);
}

}  // namespace grapnel
