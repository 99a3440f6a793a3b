/// The ops that carry gradients back through views: by parts, and by memory layout, where a buffer
/// stands for the storage, and tensors are read from it or written to it by aliases.
#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/cpu/run.h"
#include "grapnel/ops/defs/view.h"

namespace grapnel::cpu {

namespace {

template <class V>
void run_part(Inputs in, const typename PartBackward<V>::Attrs& a, std::span<Tensor> out) {
  set_zero(out[0]);
  cpu::copy(make_alias(out[0], V::part(geometry_of(out[0]), a.view)), *in[0]);
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
    memory = borrowed ? values : Tensor(TensorImpl::empty({end - begin}, dtype, kCPU));
    if (!borrowed) set_zero(memory);
    base = alias(a.base, begin);
    view = alias(a.view, begin);
  }
  Tensor alias(Geometry g, int64_t begin) const {
    g.offset += memory.storage_offset() - begin;
    return make_alias(memory, g);
  }
  /// Gives `out` the values at base.
  void read_base(const Tensor& out) const {
    if (!borrowed) cpu::copy(out, base);
  }
};

/// Divides each place of the window by the number of base elements that lie there.
void share_among_base(const Window& w, const StridedAttrs& a) {
  const Window counts(a, w.memory.dtype());
  add_in_order(counts.base, wrap_number(1));
  visit_dtype(w.memory.dtype(), [&]<class T>() {
    T* values = reinterpret_cast<T*>(w.memory.impl().host());
    const T* count = reinterpret_cast<const T*>(counts.memory.impl().host());
    for (int64_t i = 0; i < w.memory.numel(); ++i)
      if (count[i] != T(0)) values[i] = static_cast<T>(values[i] / count[i]);
  });
}

}  // namespace

template <>
void run<PartBackward<SliceView>>(Inputs in, const PartBackward<SliceView>::Attrs& a,
                                  std::span<Tensor> out) {
  run_part<SliceView>(in, a, out);
}
template <>
void run<PartBackward<Select>>(Inputs in, const PartBackward<Select>::Attrs& a,
                               std::span<Tensor> out) {
  run_part<Select>(in, a, out);
}
template <>
void run<PartBackward<Diagonal>>(Inputs in, const PartBackward<Diagonal>::Attrs& a,
                                 std::span<Tensor> out) {
  run_part<Diagonal>(in, a, out);
}

template <>
void run<AsStridedBackward>(Inputs in, const AsStridedBackward::Attrs& a, std::span<Tensor> out) {
  set_zero(out[0]);
  const Window w(a, out[0].dtype(), out[0]);
  if (overlaps(a.view)) add_in_order(w.view, *in[0]);
  else cpu::copy(w.view, *in[0]);
  if (overlaps(a.base)) share_among_base(w, a);
  w.read_base(out[0]);
}

template <>
void run<AsStridedCopy>(Inputs in, const AsStridedCopy::Attrs& a, std::span<Tensor> out) {
  const Tensor x = dense(*in[0], out[0].dtype());
  const Window w(a, out[0].dtype(), x);
  if (overlaps(a.base)) {
    add_in_order(w.base, x);
    share_among_base(w, a);
  } else if (!w.borrowed) {
    cpu::copy(w.base, x);
  }
  cpu::copy(out[0], w.view);
}

template <>
void run<AsStridedScatter>(Inputs in, const AsStridedScatter::Attrs& a, std::span<Tensor> out) {
  const Window w(a, out[0].dtype(), out[0]);
  cpu::copy(w.base, *in[0]);
  cpu::copy(w.view, *in[1]);
  w.read_base(out[0]);
}

}  // namespace grapnel::cpu
