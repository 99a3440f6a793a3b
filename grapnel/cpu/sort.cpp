/// Sorting and extremes, line by line.
#include "grapnel/ops/defs/sort.h"

#include <algorithm>
#include <vector>

#include "grapnel/cpu/lines.h"
#include "grapnel/cpu/raw.h"

namespace grapnel::cpu {

namespace {

/// a < b with NaN above everything.
template <class T>
bool less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (b != b && a == a);
  else return a < b;
}
/// a before b in descending order.
template <class T>
bool greater(T a, T b) {
  return less(b, a);
}
/// Whether b, found later, replaces the extreme a.
template <class T>
bool rises(T a, T b) {
  return less(a, b);
}
template <class T>
bool falls(T a, T b) {
  // NaN wins here too, so it counts as below everything.
  if constexpr (std::is_floating_point_v<T>) return (b < a && a == a) || (b != b && a == a);
  else return b < a;
}

/// Orders each line: the first `count` values in order, with their positions.
template <class T>
void sort_lines(const Tensor& x, const Tensor& values, const Tensor& positions, int dim,
                int64_t count, bool descending) {
  struct Entry {
    T value;
    int64_t position;
  };
  const int64_t length = x.dim() == 0 ? 1 : x.shape()[dim];
  for_lines<3>(x.shape(), dim, {x, values, positions}, LineOrder::kept, [&](const LinePiece<3>& p) {
    std::vector<Entry> line(static_cast<size_t>(length));
    for (int64_t j = 0; j < p.lines; ++j) {
      for (int64_t i = 0; i < length; ++i) line[static_cast<size_t>(i)] = {p.at<T>(0, j, i), i};
      // Positions break ties, so the order is that of a stable sort.
      auto order = [&](auto before) {
        auto first = [before](const Entry& a, const Entry& b) {
          return before(a.value, b.value) || (!before(b.value, a.value) && a.position < b.position);
        };
        if (count < length)
          std::partial_sort(line.begin(), line.begin() + count, line.end(), first);
        else std::sort(line.begin(), line.end(), first);
      };
      descending ? order(greater<T>) : order(less<T>);
      for (int64_t i = 0; i < count; ++i) {
        p.at<T>(1, j, i) = line[static_cast<size_t>(i)].value;
        p.at<int64_t>(2, j, i) = line[static_cast<size_t>(i)].position;
      }
    }
  });
}

void sorted(const Tensor& x, std::span<Tensor> out, int dim, int64_t count, bool descending) {
  if (out[0].numel() == 0) return;
  const DType wide = dtype_of(compute_type(x.dtype()));
  const Tensor values = result_buffer(out[0], wide);
  visit_compute(x.dtype(), [&]<class T>() {
    sort_lines<T>(converted(x, wide), values, out[1], dim, count, descending);
  });
  store_result(out[0], values);
}

/// The extreme of each line; `values` may be undefined.
template <bool Max>
void extremes(const Tensor& in, const Tensor& values, const Tensor& positions, int dim) {
  if (positions.numel() == 0) return;
  const Tensor x = converted(in, dtype_of(compute_type(in.dtype())));
  // The results as lines of one element.
  Geometry g = geometry_of(positions);
  g.sizes = in.shape();
  g.strides = Shape::filled(g.sizes.size(), 0);
  Shape kept = in.shape();
  if (!kept.empty()) kept[dim] = 1;
  const Shape strides = contiguous_strides(kept);
  for (int i = 0; i < g.sizes.size(); ++i)
    if (i != dim) g.strides[i] = strides[i];
  const Tensor at = make_alias(positions, g);
  visit_compute(x.dtype(), [&]<class T>() {
    const Tensor best(TensorImpl::empty(kept, x.dtype(), kCPU));
    for_lines<3>(in.shape(), dim, {x, at, make_alias(best, {g.sizes, g.strides, 0})},
                 LineOrder::kept, [&](const LinePiece<3>& p) {
                   p.for_each([&](int64_t j, int64_t i) {
                     const T value = p.at<T>(0, j, i);
                     T& so_far = p.at<T>(2, j, 0);
                     if (i == 0 || (Max ? rises(so_far, value) : falls(so_far, value))) {
                       so_far = value;
                       p.at<int64_t>(1, j, 0) = i;
                     }
                   });
                 });
    if (values.defined())
      cpu::copy(values, make_alias(best, {values.shape(), contiguous_strides(values.shape()), 0}));
  });
}

}  // namespace

template <>
void run<Sort>(Inputs in, const Sort::Attrs& a, std::span<Tensor> out) {
  const int dim = static_cast<int>(a.dim);
  sorted(*in[0], out, dim, in[0]->dim() == 0 ? 1 : in[0]->shape()[dim], a.descending);
}

template <>
void run<Topk>(Inputs in, const Topk::Attrs& a, std::span<Tensor> out) {
  sorted(*in[0], out, static_cast<int>(a.dim), a.k, a.largest);
}

template <>
void run<MaxAlong>(Inputs in, const MaxAlong::Attrs& a, std::span<Tensor> out) {
  extremes<true>(*in[0], out[0], out[1], static_cast<int>(a.dim));
}
template <>
void run<MinAlong>(Inputs in, const MinAlong::Attrs& a, std::span<Tensor> out) {
  extremes<false>(*in[0], out[0], out[1], static_cast<int>(a.dim));
}

template <>
void run<Argmax>(Inputs in, const Argmax::Attrs& a, std::span<Tensor> out) {
  extremes<true>(*in[0], {}, out[0], static_cast<int>(a.dim));
}
template <>
void run<Argmin>(Inputs in, const Argmin::Attrs& a, std::span<Tensor> out) {
  extremes<false>(*in[0], {}, out[0], static_cast<int>(a.dim));
}

}  // namespace grapnel::cpu
