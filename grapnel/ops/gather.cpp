/// gather and scatter: one position per element.
#include "grapnel/ops/assign.h"
#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/lines.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// The index may be smaller than x, of these sizes, in every dimension but `dim`, where its size is
/// free.
void check_shapes(const Shape& x, const Tensor& index, int64_t dim, std::string_view op) {
  check_index_type(index, op);
  attrs::dim(op, dim, x.size());
  const int rank = std::max(x.size(), 1), index_rank = std::max(index.shape().size(), 1);
  check(rank == index_rank || index.numel() == 0, op, ": the index has ", index.dim(),
        " dimensions and the tensor ", x.size(), " (shapes ", index.shape(), " and ", x,
        "); they must agree.");
  if (index.numel() == 0) return;
  for (int d = 0; d < index.shape().size(); ++d)
    check(d == dim || (d < x.size() ? x[d] : 1) >= index.shape()[d], op, ": the index of shape ",
          index.shape(), " is larger than the tensor of shape ", x, " in dimension ", d,
          ".\nOnly dimension ", dim, " may be larger.");
}

/// A 0-dimensional tensor as a vector of one.
Tensor at_least_vector(const Tensor& t) {
  return t.dim() > 0 ? t : make_alias(t, {{1}, {1}, t.storage_offset()});
}

/// The index as contiguous i64, checked against the size of `dim`.
Tensor checked_index(const Tensor& index, const Tensor& x, int64_t dim, std::string_view op) {
  const Tensor positions = at_least_vector(dense(index, kInt64));
  check_index_bounds(positions, x.dim() == 0 ? 1 : x.shape()[static_cast<int>(dim)], dim, op);
  return positions;
}

/// Calls fn(source element, element of y at its position) along the lines of the index; `y` is x or
/// the result.
template <class T, class Fn>
void for_positions(const Tensor& y, const Tensor& index, const Tensor& source, int64_t dim,
                   LineOrder order, Fn fn) {
  const Tensor whole = at_least_vector(y);
  const int64_t stride = whole.stride(dim);
  for_lines<3>(index.shape(), static_cast<int>(dim), {at_least_vector(source), index, whole}, order,
               [&](const LinePiece<3>& p) {
                 p.for_each([&](int64_t j, int64_t i) {
                   fn(p.at<T>(0, j, i), (&p.at<T>(2, j, 0))[p.at<int64_t>(1, j, i) * stride]);
                 });
               });
}

/// Adds in the compute type, each element's addends in the order of the source.
void add_at(const Tensor& out, const Tensor& index, const Tensor& source, int64_t dim) {
  raw_widened(out, [&](const Tensor& wide) {
    const Tensor addend = converted(source, wide.dtype());
    visit_compute(wide.dtype(), [&]<class T>() {
      for_positions<T>(wide, index, addend, dim, LineOrder::kept,
                       [](T& from, T& to) { to = (wrapping(to) + wrapping(from)).v; });
    });
  });
}

void check_source(const Tensor& x, const Tensor& index, const Tensor& source, std::string_view op) {
  check(source.dtype() == x.dtype(), op, ": the source is ", source.dtype(), " but the tensor is ",
        x.dtype(), ".\nConvert it: source.to(", x.dtype(), ").");
  check(source.shape() == index.shape(), op, ": the source has shape ", source.shape(),
        " and the index ", index.shape(), ".");
}

/// The part of the source that has a position.
Tensor positioned_part(const Tensor& source, const Tensor& index, const char* op) {
  if (source.shape() == index.shape()) return source;
  bool fits = source.shape().size() == index.shape().size();
  for (int d = 0; fits && d < index.shape().size(); ++d)
    fits = source.shape()[d] >= index.shape()[d];
  check(fits, op, ": the index of shape ", index.shape(), " is larger than the source of shape ",
        source.shape(), ".");
  Tensor part = source;
  for (int d = 0; d < index.shape().size(); ++d)
    if (part.shape()[d] != index.shape()[d]) part = part.narrow(d, 0, index.shape()[d]);
  return part;
}

Tensor sample_index(std::initializer_list<int64_t> values, const Shape& sizes) {
  Tensor t(TensorImpl::empty(sizes, kInt64));
  std::copy(values.begin(), values.end(), reinterpret_cast<int64_t*>(t.impl().data()));
  return t;
}
Tensor repeated_index() { return sample_index({0, 2, 2, 1, 1, 1}, {2, 3}); }

}  // namespace

void Gather::infer(Inputs in, const Attrs& a, Specs& out) {
  check_shapes(in[0]->shape(), *in[1], a.dim, name);
  out.push_back({in[1]->shape(), in[0]->dtype()});
}
void Gather::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  const Tensor index = checked_index(*in[1], *in[0], a.dim, name);
  visit_word(out[0].dtype(), [&]<class W>() {
    for_positions<W>(*in[0], index, out[0], a.dim, LineOrder::free,
                     [](W& to, W& from) { to = from; });
  });
}
Grads Gather::grad(const Saved& s, const Tensor& g) {
  return {apply<GatherBackward>({s.attrs<Attrs>().dim, s.input_shape(0)}, g, s.input(1)), Tensor()};
}

void GatherBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  checked_numel(a.sizes, name.data());
  check_shapes(a.sizes, *in[1], a.dim, name);
  check(in[0]->shape() == in[1]->shape(), name, ": the gradient has shape ", in[0]->shape(),
        " and the index ", in[1]->shape(), ".");
  out.push_back({a.sizes, in[0]->dtype()});
}
void GatherBackward::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  raw_zero(out[0]);
  if (in[0]->numel() > 0) add_at(out[0], checked_index(*in[1], out[0], a.dim, name), *in[0], a.dim);
}

void Scatter::infer(Inputs in, const Attrs& a, Specs& out) {
  check_shapes(in[0]->shape(), *in[1], a.dim, name);
  check_source(*in[0], *in[1], *in[2], name);
  out.push_back({in[0]->shape(), in[0]->dtype()});
}
void Scatter::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const Tensor index = checked_index(*in[1], *in[0], a.dim, name),
               source = raw_apart(*in[2], out[0]);
  raw_begin_with(out[0], *in[0]);
  if (index.numel() == 0) return;
  visit_word(out[0].dtype(), [&]<class W>() {
    for_positions<W>(out[0], index, source, a.dim, LineOrder::kept,
                     [](W& from, W& to) { to = from; });
  });
}
Grads Scatter::grad(const Saved& s, const Tensor& g) {
  const int64_t dim = s.attrs<Attrs>().dim;
  const Tensor index = s.input(1);
  return {s.needs(0) ? g.scatter(dim, index, 0) : Tensor(), Tensor(),
          s.needs(2) ? gather(g, dim, index) : Tensor()};
}

void ScatterAdd::infer(Inputs in, const Attrs& a, Specs& out) {
  check_shapes(in[0]->shape(), *in[1], a.dim, name);
  check_source(*in[0], *in[1], *in[2], name);
  out.push_back({in[0]->shape(), in[0]->dtype()});
}
void ScatterAdd::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const Tensor index = checked_index(*in[1], *in[0], a.dim, name),
               source = raw_apart(*in[2], out[0]);
  raw_begin_with(out[0], *in[0]);
  if (index.numel() > 0) add_at(out[0], index, source, a.dim);
}

Samples Gather::samples() { return {sample({sample_tensor({3, 3}), repeated_index()}, Attrs{0})}; }
Samples GatherBackward::samples() {
  return {sample({sample_tensor({2, 3}), repeated_index()}, Attrs{1, {2, 3}})};
}
Samples Scatter::samples() {
  return {sample({sample_tensor({3, 3}), sample_index({0, 2, 2, 1, 0, 1}, {2, 3}),
                  sample_tensor({2, 3}, 1, 2)},
                 Attrs{0})};
}
Samples ScatterAdd::samples() {
  return {sample({sample_tensor({3, 3}), repeated_index(), sample_tensor({2, 3}, 1, 2)}, Attrs{1})};
}

// --- as the user calls them ---

namespace {
DimAttrs along(const Tensor& x, int64_t dim, const char* op) {
  return {wrap_dim(dim, x.shape().size(), op)};
}
Tensor spread(const Scalar& value, const Tensor& x, const Tensor& index) {
  return scalar_tensor(value, x.dtype()).expand(index.shape());
}
}  // namespace

Tensor Tensor::gather(int64_t dim, const Tensor& index) const {
  GRAPNEL_CALL_SITE;
  return picked_copy(apply<Gather>(along(*this, dim, "gather"), *this, index));
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply<Scatter>(along(*this, dim, "scatter"), *this, index,
                        positioned_part(source, index, "scatter"));
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return apply<Scatter>(along(*this, dim, "scatter"), *this, index, spread(value, *this, index));
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<Scatter>(along(*this, dim, "scatter_"), *this, index,
                                positioned_part(source, index, "scatter_"));
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<Scatter>(along(*this, dim, "scatter_"), *this, index,
                                spread(value, *this, index));
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply<ScatterAdd>(along(*this, dim, "scatter_add"), *this, index,
                           positioned_part(source, index, "scatter_add"));
}
Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<ScatterAdd>(along(*this, dim, "scatter_add_"), *this, index,
                                   positioned_part(source, index, "scatter_add_"));
}
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  GRAPNEL_CALL_SITE;
  return x.gather(dim, index);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  GRAPNEL_CALL_SITE;
  return x.scatter(dim, index, source);
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  GRAPNEL_CALL_SITE;
  return x.scatter_add(dim, index, source);
}

}  // namespace grapnel
