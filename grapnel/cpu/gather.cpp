/// gather and scatter, line by line along the index.
#include "grapnel/cpu/lines.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/ops/defs/index.h"

namespace grapnel::cpu {

namespace {

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
  widened(out, [&](const Tensor& wide) {
    const Tensor addend = converted(source, wide.dtype());
    visit_compute(wide.dtype(), [&]<class T>() {
      for_positions<T>(wide, index, addend, dim, LineOrder::kept,
                       [](T& from, T& to) { to = (wrapping(to) + wrapping(from)).v; });
    });
  });
}

}  // namespace

template <>
void run<Gather>(Inputs in, const Gather::Attrs& a, std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  const Tensor index = checked_index(*in[1], *in[0], a.dim, Gather::name);
  visit_word(out[0].dtype(), [&]<class W>() {
    for_positions<W>(*in[0], index, out[0], a.dim, LineOrder::free,
                     [](W& to, W& from) { to = from; });
  });
}

template <>
void run<GatherBackward>(Inputs in, const GatherBackward::Attrs& a, std::span<Tensor> out) {
  set_zero(out[0]);
  if (in[0]->numel() > 0)
    add_at(out[0], checked_index(*in[1], out[0], a.dim, GatherBackward::name), *in[0], a.dim);
}

template <>
void run<Scatter>(Inputs in, const Scatter::Attrs& a, std::span<Tensor> out) {
  const Tensor index = checked_index(*in[1], *in[0], a.dim, Scatter::name),
               source = apart_from(*in[2], out[0]);
  begin_with(out[0], *in[0]);
  if (index.numel() == 0) return;
  visit_word(out[0].dtype(), [&]<class W>() {
    for_positions<W>(out[0], index, source, a.dim, LineOrder::kept,
                     [](W& from, W& to) { to = from; });
  });
}

template <>
void run<ScatterAdd>(Inputs in, const ScatterAdd::Attrs& a, std::span<Tensor> out) {
  const Tensor index = checked_index(*in[1], *in[0], a.dim, ScatterAdd::name),
               source = apart_from(*in[2], out[0]);
  begin_with(out[0], *in[0]);
  if (index.numel() > 0) add_at(out[0], index, source, a.dim);
}

}  // namespace grapnel::cpu
