/// Positions from masks and indices, one-hot vectors, triangles, on host memory.
#include <algorithm>

#include "grapnel/cpu/raw.h"
#include "grapnel/ops/defs/index.h"

namespace grapnel::cpu {

namespace {

/// Calls fn(n) for the row-major number n of every element that is not zero.
template <class Fn>
void for_nonzero(const Tensor& x, Fn fn) {
  const Tensor mask = dense(x, kBool);
  const auto* on = reinterpret_cast<const bool*>(mask.impl().host());
  for (int64_t i = 0; i < mask.numel(); ++i)
    if (on[i]) fn(i);
}

/// The number was found when the call was recorded; the values may be others now.
void check_count(std::string_view op, int64_t count, int64_t found) {
  check(found == count, op, ": the result was made for ", count,
        " elements that are not zero, but there are ", found, ".");
}

/// A diagonal beyond the matrix is as good as the first one there.
int64_t diagonal_near(const Tensor& x, int64_t diagonal) {
  return std::clamp<int64_t>(diagonal, -x.size(-2) - 1, x.size(-1) + 1);
}

/// Copies the elements for which keep(row, column) holds in ranges of columns; the others become
/// zero.
template <class Range>
void copy_triangle(const Tensor& x, const Tensor& out, Range kept_columns) {
  set_zero(out);
  if (out.numel() == 0) return;
  const int rank = x.shape().size();
  const int64_t rows = x.shape()[rank - 2], columns = x.shape()[rank - 1];
  for (int64_t row = 0; row < rows; ++row) {
    const auto [begin, end] = kept_columns(row);
    const int64_t from = std::clamp<int64_t>(begin, 0, columns),
                  to = std::clamp<int64_t>(end, 0, columns);
    if (from >= to) continue;
    auto part = [&](const Tensor& t) {
      Geometry g = geometry_of(t);
      g.offset += row * g.strides[rank - 2] + from * g.strides[rank - 1];
      g.sizes[rank - 2] = 1;
      g.sizes[rank - 1] = to - from;
      return make_alias(t, g);
    };
    cpu::copy(part(out), part(x));
  }
}

}  // namespace

template <>
void run<RavelIndex>(Inputs in, const RavelIndex::Attrs& a, std::span<Tensor> out) {
  set_zero(out[0]);
  auto* result = reinterpret_cast<int64_t*>(out[0].impl().host());
  const Tensor wrapped(TensorImpl::empty(out[0].shape(), kInt64, kCPU));
  auto* index = reinterpret_cast<int64_t*>(wrapped.impl().host());
  for (int k = 0; k < a.sizes.size(); ++k) {
    cpu::copy(wrapped, *in[static_cast<size_t>(k)]);
    const int64_t n = wrapped.numel(), size = a.sizes[k];
    // Out of range either way stays out of range, so that the message shows the index as it was
    // given.
    for (int64_t i = 0; i < n; ++i) index[i] += index[i] < 0 && index[i] >= -size ? size : 0;
    check_index_bounds(wrapped, size, a.dims[k], "index");
    for (int64_t i = 0; i < n; ++i) result[i] = result[i] * size + index[i];
  }
}

template <>
void run<MaskPositions>(Inputs in, const MaskPositions::Attrs& a, std::span<Tensor> out) {
  auto* p = reinterpret_cast<int64_t*>(out[0].impl().host());
  int64_t found = 0;
  for_nonzero(*in[0], [&](int64_t n) {
    if (found < a.count) p[found] = n;
    ++found;
  });
  check_count(MaskPositions::name, a.count, found);
}

template <>
void run<Nonzero>(Inputs in, const Nonzero::Attrs& a, std::span<Tensor> out) {
  const Shape& sizes = in[0]->shape();
  auto* p = reinterpret_cast<int64_t*>(out[0].impl().host());
  int64_t found = 0;
  for_nonzero(*in[0], [&](int64_t n) {
    if (found++ >= a.count) return;
    p += sizes.size();
    for (int i = sizes.size() - 1, back = 1; i >= 0; --i, ++back) {
      p[-back] = n % sizes[i];
      n /= sizes[i];
    }
  });
  check_count(Nonzero::name, a.count, found);
}

template <>
void run<OneHot>(Inputs in, const OneHot::Attrs& a, std::span<Tensor> out) {
  const Tensor classes = dense(*in[0], kInt64);
  check_index_bounds(classes, a.count, in[0]->dim(), OneHot::name);
  set_zero(out[0]);
  const auto* index = reinterpret_cast<const int64_t*>(classes.impl().host());
  auto* result = reinterpret_cast<int64_t*>(out[0].impl().host());
  for (int64_t i = 0; i < classes.numel(); ++i) result[i * a.count + index[i]] = 1;
}

template <>
void run<Tril>(Inputs in, const Tril::Attrs& a, std::span<Tensor> out) {
  const int64_t diagonal = diagonal_near(*in[0], a.diagonal);
  copy_triangle(*in[0], out[0],
                [&](int64_t row) { return std::pair(int64_t{0}, row + diagonal + 1); });
}
template <>
void run<Triu>(Inputs in, const Triu::Attrs& a, std::span<Tensor> out) {
  const int64_t columns = in[0]->shape().back(), diagonal = diagonal_near(*in[0], a.diagonal);
  copy_triangle(*in[0], out[0], [&](int64_t row) { return std::pair(row + diagonal, columns); });
}

}  // namespace grapnel::cpu
