/// Where each view lies in memory, and the gradients of views that need more than a line.
#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

Tensor make_alias(const Tensor& base, const Geometry& geometry) {
  const TensorImpl& t = base.impl();
  return Tensor(
      TensorImpl::create(t.storage, t.dtype, geometry.sizes, geometry.strides, geometry.offset));
}

Geometry Reshape::geometry(const Tensor& x, const Attrs& a) {
  Geometry g{a.sizes, {}, x.storage_offset()};
  check(view_strides(x.shape(), x.impl().strides, a.sizes, g.strides), "view: a tensor of shape ",
        x.shape(), " and strides ", x.strides(), " cannot be seen as ", a.sizes,
        " without copying.\nUse reshape, which copies when it has to.");
  return g;
}

Geometry Transpose::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  if (g.sizes.empty()) return g;
  const int i = static_cast<int>(a.dim0), j = static_cast<int>(a.dim1);
  std::swap(g.sizes[i], g.sizes[j]);
  std::swap(g.strides[i], g.strides[j]);
  return g;
}

Geometry Permute::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  for (int i = 0; i < a.dims.size(); ++i) {
    const int from = static_cast<int>(a.dims[i]);
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
  Geometry g{a.sizes, Shape::filled(a.sizes.size(), 0), x.storage_offset()};
  const int added = a.sizes.size() - x.shape().size();
  for (int i = added; i < a.sizes.size(); ++i)
    if (x.shape()[i - added] == a.sizes[i]) g.strides[i] = x.impl().strides[i - added];
  return g;
}

Geometry Squeeze::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  for (int i = a.dims.size() - 1; i >= 0; --i) {
    g.sizes.erase(static_cast<int>(a.dims[i]));
    g.strides.erase(static_cast<int>(a.dims[i]));
  }
  return g;
}

Geometry Unsqueeze::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  const int dim = static_cast<int>(a.dim);
  const int64_t stride = dim < g.sizes.size() ? g.sizes[dim] * g.strides[dim] : 1;
  g.sizes.insert(dim, 1);
  g.strides.insert(dim, stride);
  return g;
}

Geometry SliceView::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  const int dim = static_cast<int>(a.dim);
  g.offset += a.start * g.strides[dim];
  g.sizes[dim] = a.end <= a.start ? 0 : (a.end - a.start + a.step - 1) / a.step;
  g.strides[dim] *= a.step;
  return g;
}

Geometry Select::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  const int dim = static_cast<int>(a.dim);
  g.offset += a.index * g.strides[dim];
  g.sizes.erase(dim);
  g.strides.erase(dim);
  return g;
}

Geometry Diagonal::geometry(const Tensor& x, const Attrs& a) {
  Geometry g = geometry_of(x);
  const int d1 = static_cast<int>(a.dim1), d2 = static_cast<int>(a.dim2);
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

std::vector<Geometry> Unbind::views(const Tensor& x, const Attrs& a) {
  std::vector<Geometry> out;
  const int64_t count = x.shape()[static_cast<int>(a.dim)];
  out.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out.push_back(Select::geometry(x, {a.dim, i}));
  return out;
}

std::vector<Geometry> Split::views(const Tensor& x, const Attrs& a) {
  std::vector<Geometry> out;
  const int64_t total = x.shape()[static_cast<int>(a.dim)];
  int64_t start = 0;
  do {
    const int64_t end = std::min(total, start + a.size);
    out.push_back(SliceView::geometry(x, {a.dim, start, end, 1}));
    start = end;
  } while (start < total);
  return out;
}

std::vector<Geometry> SplitWithSizes::views(const Tensor& x, const Attrs& a) {
  std::vector<Geometry> out;
  int64_t start = 0;
  for (int64_t size : a.sizes) {
    out.push_back(SliceView::geometry(x, {a.dim, start, start + size, 1}));
    start += size;
  }
  return out;
}

Grads Unbind::grad(const Saved& s, const Grads& g) {
  const int dim = static_cast<int>(s.attrs<Attrs>().dim);
  Shape sizes = s.input_shape(0);
  sizes.erase(dim);
  std::vector<Tensor> parts(g.begin(), g.end());
  Tensor nothing;
  for (Tensor& part : parts) {
    if (part.defined()) continue;
    if (!nothing.defined()) nothing = zeros(sizes, s.input_dtype(0));
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
    parts[i] = zeros(sizes, s.input_dtype(0));
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
