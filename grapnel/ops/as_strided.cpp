/// Views given by memory layout: a buffer stands for the storage, and tensors are read from it or
/// written to it by aliases.
#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// One past the last element of the storage that `g` touches. Fails where that is beyond all
/// memory.
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

/// Fails unless `t`, the operand called so, has the sizes of `g`.
void check_lies_as(const char* op, const char* operand, const Tensor& t, const Geometry& g) {
  check(t.shape() == g.sizes, op, ": ", operand, " has shape ", t.shape(), ", and ", g.sizes,
        " was expected.");
}
void check_both(const char* op, const StridedAttrs& a) {
  end_of(a.base, op);
  end_of(a.view, op);
}

/// Whether two elements of `g` may lie in one place. Sorted by stride, each dimension must step
/// over all smaller ones.
bool overlaps(const Geometry& g) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int i = 0; i < g.sizes.size(); ++i) {
    if (g.sizes[i] == 0) return false;
    if (g.sizes[i] > 1) dims.emplace_back(g.strides[i], g.sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t covered = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= covered) return true;
    covered += stride * (size - 1);
  }
  return false;
}

/// The part of a storage that holds `base` and `view`, and both as aliases of it.
struct Window {
  Tensor memory, base, view;
  bool borrowed = false;

  /// A fresh one, all zeros.
  Window(const StridedAttrs& a, DType dtype) : Window(a, dtype, Tensor()) {}
  /// Where base lies densely and holds all of the view, `values`, contiguous and in base's shape,
  /// is the window itself.
  Window(const StridedAttrs& a, DType dtype, const Tensor& values) {
    const int64_t begin = std::min(a.base.offset, a.view.offset);
    const int64_t base_end = end_of(a.base, "as_strided");
    const int64_t end = std::max({base_end, end_of(a.view, "as_strided"), begin});
    borrowed = values.defined() && begin == a.base.offset && end == base_end &&
               make_alias(values, {a.base.sizes, a.base.strides, 0}).is_contiguous();
    memory = borrowed ? values : zeros({end - begin}, dtype);
    base = alias(a.base, begin);
    view = alias(a.view, begin);
  }
  Tensor alias(Geometry g, int64_t begin) const {
    g.offset += memory.storage_offset() - begin;
    return make_alias(memory, g);
  }
  /// Gives `out` the values at base.
  void read_base(const Tensor& out) const {
    if (!borrowed) copy_elements(out, base);
  }
};

/// Divides each place of the window by the number of base elements that lie there.
void share_among_base(const Window& w, const StridedAttrs& a) {
  const Window counts(a, w.memory.dtype());
  raw_add(counts.base, scalar_tensor(1, w.memory.dtype()));
  visit_dtype(w.memory.dtype(), [&]<class T>() {
    T* values = reinterpret_cast<T*>(w.memory.impl().data());
    const T* count = reinterpret_cast<const T*>(counts.memory.impl().data());
    for (int64_t i = 0; i < w.memory.numel(); ++i)
      if (count[i] != T(0)) values[i] = static_cast<T>(values[i] / count[i]);
  });
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

void AsStridedBackward::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  raw_zero(out[0]);
  const Window w(a, out[0].dtype(), out[0]);
  if (overlaps(a.view)) raw_add(w.view, *in[0]);
  else copy_elements(w.view, *in[0]);
  if (overlaps(a.base)) share_among_base(w, a);
  w.read_base(out[0]);
}
Grads AsStridedBackward::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  return {as_strided_copy(g, a.base, a.view)};
}

void AsStridedCopy::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const Tensor x = dense(*in[0], out[0].dtype());
  const Window w(a, out[0].dtype(), x);
  if (overlaps(a.base)) {
    raw_add(w.base, x);
    share_among_base(w, a);
  } else if (!w.borrowed) {
    copy_elements(w.base, x);
  }
  copy_elements(out[0], w.view);
}

void AsStridedScatter::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const Window w(a, out[0].dtype(), out[0]);
  copy_elements(w.base, *in[0]);
  copy_elements(w.view, *in[1]);
  w.read_base(out[0]);
}
Grads AsStridedScatter::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  return {
      s.needs(0) ? as_strided_scatter(g, zeros(a.view.sizes, g.dtype()), a.base, a.view) : Tensor(),
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

Tensor Tensor::as_strided(IntArrayRef size, IntArrayRef stride,
                          std::optional<int64_t> storage_offset) const {
  GRAPNEL_CALL_SITE;
  const int64_t offset = storage_offset.value_or(this->storage_offset());
  return as_strided_view(*this, {Shape(size), Shape(stride), offset});
}

}  // namespace grapnel
