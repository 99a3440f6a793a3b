/// Where each view lies in memory, and the gradients of views that need more than a line.
#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

Tensor make_alias(const Tensor& base, const Geometry& geometry) {
  const TensorImpl& t = base.impl();
  return Tensor(
      TensorImpl::create(t.storage, t.dtype, geometry.sizes, geometry.strides, geometry.offset));
}

Geometry Reshape::geometry(const Tensor& x, const Attrs& a) {
  const int64_t count = checked_numel(a.sizes, "view");
  check(count == x.numel(), "view: ", a.sizes, " has ", count, " elements but the tensor has ",
        x.numel(), ".");
  Geometry g{a.sizes, {}, x.storage_offset()};
  check(view_strides(x.shape(), x.impl().strides, a.sizes, g.strides), "view: a tensor of shape ",
        x.shape(), " and strides ", x.strides(), " cannot be seen as ", a.sizes,
        " without copying.\nUse reshape, which copies when it has to.");
  return g;
}

Geometry Transpose::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  const int i = attrs::dim(name, a.dim0, g.sizes.size()),
            j = attrs::dim(name, a.dim1, g.sizes.size());
  if (g.sizes.empty()) return g;
  std::swap(g.sizes[i], g.sizes[j]);
  std::swap(g.strides[i], g.strides[j]);
  return g;
}

Geometry Permute::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  const int rank = g.sizes.size();
  check(a.dims.size() == rank, "permute: ", a.dims, " is no order of ", rank, " dimensions.");
  uint32_t seen = 0;
  for (int i = 0; i < rank; ++i) {
    const int from = attrs::dim(name, a.dims[i], rank);
    check(!(seen >> from & 1), "permute: dimension ", from, " appears twice in ", a.dims, ".");
    seen |= 1u << from;
    g.sizes[i] = x.shape()[from];
    g.strides[i] = x.impl().strides[from];
  }
  return g;
}
Grads Permute::grad(const Saved& s, const Tensor& g) {
  const Shape& dims = s.attrs<Attrs>().dims;
  Shape inverse = dims;
  for (int i = 0; i < dims.size(); ++i) inverse[static_cast<int>(dims[i])] = i;
  return {g.permute(inverse)};
}

Geometry Expand::geometry(const Tensor& x, const Attrs& a) {
  const int added = a.sizes.size() - x.shape().size();
  check(added >= 0, "expand: ", a.sizes, " has fewer dimensions than the tensor, whose shape is ",
        x.shape(), ".");
  checked_numel(a.sizes, "expand");
  Geometry g{a.sizes, Shape::filled(a.sizes.size(), 0), x.storage_offset()};
  for (int i = added; i < a.sizes.size(); ++i) {
    const int64_t have = x.shape()[i - added];
    if (have == a.sizes[i]) g.strides[i] = x.impl().strides[i - added];
    else
      check(have == 1, "expand: size ", have, " cannot become ", a.sizes[i], " at dimension ", i,
            " (from ", x.shape(), " to ", a.sizes,
            ").\nOnly dimensions of size 1 can be expanded; repeat() copies.");
  }
  return g;
}

Geometry Squeeze::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  attrs::dims(name, a.dims, g.sizes.size());
  for (int i = a.dims.size() - 1; i >= 0; --i) {
    const int dim = static_cast<int>(a.dims[i]);
    check(g.sizes[dim] == 1, "squeeze: dimension ", dim, " has size ", g.sizes[dim],
          ", not 1 (shape ", x.shape(), ").");
    g.sizes.erase(dim);
    g.strides.erase(dim);
  }
  return g;
}

Geometry Unsqueeze::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  const int dim = attrs::dim(name, a.dim, g.sizes.size() + 1);
  const int64_t stride = dim < g.sizes.size() ? g.sizes[dim] * g.strides[dim] : 1;
  g.sizes.insert(dim, 1);
  g.strides.insert(dim, stride);
  return g;
}

Geometry SliceView::part(const Geometry& whole, const Attrs& a) {
  Geometry g = whole;
  const int dim = attrs::dim_to_cut(name, a.dim, g.sizes.size());
  check(a.step > 0, "slice: the step must be positive, got ", a.step, ".");
  check(a.start >= 0 && a.start <= a.end && a.end <= g.sizes[dim], "slice: elements ", a.start,
        " to ", a.end, " are asked for, but dimension ", dim, " has ", g.sizes[dim], " (shape ",
        whole.sizes, ").");
  g.offset += a.start * g.strides[dim];
  g.sizes[dim] = ceil_div(a.end - a.start, a.step);
  // Where there is at most one element the stride leads nowhere, and any will do.
  int64_t stride = 0;
  if (!__builtin_mul_overflow(g.strides[dim], a.step, &stride) && stride <= attrs::kFarthest)
    g.strides[dim] = stride;
  return g;
}

Geometry Select::part(const Geometry& whole, const Attrs& a) {
  Geometry g = whole;
  const int dim = attrs::dim_to_cut(name, a.dim, g.sizes.size());
  check_as<IndexError>(a.index >= 0 && a.index < g.sizes[dim], "select: index ", a.index,
                       " is out of range for dimension ", dim, " with size ", g.sizes[dim],
                       " (shape ", whole.sizes, ").");
  g.offset += a.index * g.strides[dim];
  g.sizes.erase(dim);
  g.strides.erase(dim);
  return g;
}

Geometry Diagonal::part(const Geometry& whole, const Attrs& a) {
  Geometry g = whole;
  const int d1 = attrs::dim(name, a.dim1, g.sizes.size()),
            d2 = attrs::dim(name, a.dim2, g.sizes.size());
  check(d1 != d2, "diagonal: dim1 and dim2 must differ, both are dimension ", d1, ".");
  const int64_t rows = g.sizes[d1] + std::min<int64_t>(a.offset, 0),
                columns = g.sizes[d2] - std::max<int64_t>(a.offset, 0);
  const int64_t length = std::max<int64_t>(0, std::min(rows, columns));
  const int64_t stride = g.strides[d1] + g.strides[d2];
  if (length > 0) g.offset += a.offset >= 0 ? a.offset * g.strides[d2] : -a.offset * g.strides[d1];
  for (int dim : {std::max(d1, d2), std::min(d1, d2)}) {
    g.sizes.erase(dim);
    g.strides.erase(dim);
  }
  g.sizes.push_back(length);
  g.strides.push_back(stride);
  return g;
}

namespace {
void check_result_count(std::string_view op, int64_t count, const Tensor& x) {
  check(count <= attrs::kMostResults, op, ": a tensor of shape ", x.shape(), " would give ", count,
        " results, and one call gives at most ", attrs::kMostResults, ".");
}
}  // namespace

std::vector<Geometry> Unbind::views(const Tensor& x, const Attrs& a) {
  std::vector<Geometry> out;
  const int64_t count = x.shape()[attrs::dim_to_cut(name, a.dim, x.shape().size())];
  check_result_count(name, count, x);
  out.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out.push_back(Select::geometry(x, {a.dim, i}));
  return out;
}

std::vector<Geometry> Split::views(const Tensor& x, const Attrs& a) {
  std::vector<Geometry> out;
  const int64_t total = x.shape()[attrs::dim_to_cut(name, a.dim, x.shape().size())];
  check(a.size > 0, "split: the size of a part must be positive, got ", a.size, ".");
  check_result_count(name, ceil_div(total, a.size), x);
  int64_t start = 0;
  do {
    const int64_t end = start + std::min(a.size, total - start);
    out.push_back(SliceView::geometry(x, {a.dim, start, end, 1}));
    start = end;
  } while (start < total);
  return out;
}

std::vector<Geometry> SplitWithSizes::views(const Tensor& x, const Attrs& a) {
  std::vector<Geometry> out;
  const int dim = attrs::dim_to_cut(name, a.dim, x.shape().size());
  check_split_sizes(a.sizes, x.shape(), dim);
  int64_t start = 0;
  for (int64_t size : a.sizes) {
    out.push_back(SliceView::geometry(x, {a.dim, start, start + size, 1}));
    start += size;
  }
  return out;
}
void SplitWithSizes::check_split_sizes(IntArrayRef sizes, const Shape& whole, int dim) {
  int64_t total = 0;
  for (const int64_t size : sizes) {
    check(size >= 0, "split_with_sizes: sizes must not be negative, got ", sizes, ".");
    total = checked_add(total, size, "split_with_sizes");
  }
  check(total == whole[dim], "split_with_sizes: the sizes ", sizes, " add up to ", total,
        ", but dimension ", dim, " has size ", whole[dim], ".");
}

Grads Unbind::grad(const Saved& s, const Grads& g) {
  const int dim = static_cast<int>(s.attrs<Attrs>().dim);
  Shape sizes = s.input_shape(0);
  sizes.erase(dim);
  std::vector<Tensor> parts(g.begin(), g.end());
  Tensor nothing;
  for (Tensor& part : parts) {
    if (part.defined()) continue;
    if (!nothing.defined()) nothing = zeros(sizes, s.input_options(0));
    part = nothing;
  }
  return {stack(parts, dim)};
}

namespace {
/// Joins the gradients of neighbouring ranges; size_of(i) is the size of range i.
template <class SizeOf>
Grads join_ranges(const Saved& s, const Grads& g, int64_t dim, SizeOf size_of) {
  std::vector<Tensor> parts(g.begin(), g.end());
  Shape sizes = s.input_shape(0);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].defined()) continue;
    sizes[static_cast<int>(dim)] = size_of(static_cast<int>(i));
    parts[i] = zeros(sizes, s.input_options(0));
  }
  return {cat(parts, dim)};
}
}  // namespace

Grads Split::grad(const Saved& s, const Grads& g) {
  const Attrs& a = s.attrs<Attrs>();
  const int64_t total = s.input_shape(0)[static_cast<int>(a.dim)];
  return join_ranges(s, g, a.dim, [&](int i) { return std::min(a.size, total - i * a.size); });
}
Grads SplitWithSizes::grad(const Saved& s, const Grads& g) {
  const Attrs& a = s.attrs<Attrs>();
  return join_ranges(s, g, a.dim, [&](int i) { return a.sizes[i]; });
}

}  // namespace grapnel
