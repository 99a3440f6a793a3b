/// Positions from masks and indices, one-hot vectors, triangles.
#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

Tensor sample_mask() { return sample_tensor({2, 3}) > 0; }
Tensor sample_classes() {
  Tensor t(TensorImpl::empty({3}, kInt64));
  auto* p = reinterpret_cast<int64_t*>(t.impl().data());
  p[0] = 2, p[1] = 0, p[2] = 1;
  return t;
}

/// Calls fn(n) for the row-major number n of every element that is not zero.
template <class Fn>
void for_nonzero(const Tensor& x, Fn fn) {
  const Tensor mask = dense(x, kBool);
  const auto* on = reinterpret_cast<const bool*>(mask.impl().data());
  for (int64_t i = 0; i < mask.numel(); ++i)
    if (on[i]) fn(i);
}

/// The number was found when the call was recorded; the values may be others now.
void check_count(std::string_view op, int64_t count, int64_t found) {
  check(found == count, op, ": the result was made for ", count,
        " elements that are not zero, but there are ", found, ".");
}

/// Fails where there are no rows and columns.
void check_matrix(std::string_view op, const Tensor& x) {
  check(x.dim() >= 2, op, ": a tensor with at least 2 dimensions is expected, got shape ",
        x.shape(), ".");
}
/// A diagonal beyond the matrix is as good as the first one there.
int64_t diagonal_near(const Tensor& x, int64_t diagonal) {
  return std::clamp<int64_t>(diagonal, -x.size(-2) - 1, x.size(-1) + 1);
}

/// Copies the elements for which keep(row, column) holds in ranges of columns; the others become
/// zero.
template <class Range>
void copy_triangle(const Tensor& x, const Tensor& out, Range kept_columns) {
  raw_zero(out);
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
    copy_elements(part(out), part(x));
  }
}

}  // namespace

void RavelIndex::infer(Inputs in, const Attrs& a, Specs& out) {
  check(static_cast<size_t>(a.sizes.size()) == in.size() && a.dims.size() == a.sizes.size(),
        "index: ", in.size(), " indices for the ", a.sizes.size(), " dimensions ", a.dims, ".");
  checked_numel(a.sizes, "index");
  Shape sizes;
  for (const Tensor* t : in) {
    check_index_type(*t, "index");
    sizes = broadcast_shapes(sizes, t->shape(), "index");
  }
  out.push_back({sizes, kInt64});
}
void RavelIndex::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  raw_zero(out[0]);
  auto* result = reinterpret_cast<int64_t*>(out[0].impl().data());
  const Tensor wrapped(TensorImpl::empty(out[0].shape(), kInt64));
  auto* index = reinterpret_cast<int64_t*>(wrapped.impl().data());
  for (int k = 0; k < a.sizes.size(); ++k) {
    copy_elements(wrapped, *in[static_cast<size_t>(k)]);
    const int64_t n = wrapped.numel(), size = a.sizes[k];
    // Out of range either way stays out of range, so that the message shows the index as it was
    // given.
    for (int64_t i = 0; i < n; ++i) index[i] += index[i] < 0 && index[i] >= -size ? size : 0;
    check_index_bounds(wrapped, size, a.dims[k], "index");
    for (int64_t i = 0; i < n; ++i) result[i] = result[i] * size + index[i];
  }
}
Samples RavelIndex::samples() {
  return {sample({sample_classes(), sample_classes()}, Attrs{{3, 4}, {0, 1}})};
}

void MaskPositions::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  auto* p = reinterpret_cast<int64_t*>(out[0].impl().data());
  int64_t found = 0;
  for_nonzero(*in[0], [&](int64_t n) {
    if (found < a.count) p[found] = n;
    ++found;
  });
  check_count(name, a.count, found);
}
Samples MaskPositions::samples() {
  const Tensor mask = sample_mask();
  int64_t count = 0;
  for_nonzero(mask, [&](int64_t) { ++count; });
  return {sample({mask}, Attrs{count})};
}

void Nonzero::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const Shape& sizes = in[0]->shape();
  auto* p = reinterpret_cast<int64_t*>(out[0].impl().data());
  int64_t found = 0;
  for_nonzero(*in[0], [&](int64_t n) {
    if (found++ >= a.count) return;
    p += sizes.size();
    for (int i = sizes.size() - 1, back = 1; i >= 0; --i, ++back) {
      p[-back] = n % sizes[i];
      n /= sizes[i];
    }
  });
  check_count(name, a.count, found);
}
Samples Nonzero::samples() { return MaskPositions::samples(); }

void OneHot::infer(Inputs in, const Attrs& a, Specs& out) {
  check_index_type(*in[0], name);
  Shape sizes = in[0]->shape();
  sizes.push_back(a.count);
  out.push_back({sizes, kInt64});
}
void OneHot::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const Tensor classes = dense(*in[0], kInt64);
  check_index_bounds(classes, a.count, in[0]->dim(), name);
  raw_zero(out[0]);
  const auto* index = reinterpret_cast<const int64_t*>(classes.impl().data());
  auto* result = reinterpret_cast<int64_t*>(out[0].impl().data());
  for (int64_t i = 0; i < classes.numel(); ++i) result[i * a.count + index[i]] = 1;
}
Samples OneHot::samples() { return {sample({sample_classes()}, Attrs{4})}; }

void Tril::infer(Inputs in, const Attrs&, Specs& out) {
  check_matrix(name, *in[0]);
  out.push_back({in[0]->shape(), in[0]->dtype()});
}
void Tril::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const int64_t diagonal = diagonal_near(*in[0], a.diagonal);
  copy_triangle(*in[0], out[0],
                [&](int64_t row) { return std::pair(int64_t{0}, row + diagonal + 1); });
}
void Triu::infer(Inputs in, const Attrs&, Specs& out) {
  check_matrix(name, *in[0]);
  out.push_back({in[0]->shape(), in[0]->dtype()});
}
void Triu::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const int64_t columns = in[0]->shape().back(), diagonal = diagonal_near(*in[0], a.diagonal);
  copy_triangle(*in[0], out[0], [&](int64_t row) { return std::pair(row + diagonal, columns); });
}

}  // namespace grapnel
