/// Reading and writing rows at positions (Note [Row index]).
#include <vector>

#include "grapnel/cpu/lines.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/ops/defs/index.h"

namespace grapnel::cpu {

namespace {

int64_t position_count(const Shape& x, const Shape& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= x[static_cast<int>(d)];
  return n;
}

/// How far from the start of x each position is, in elements.
std::vector<int64_t> offsets_in(const Tensor& x, const Shape& dims, const Tensor& positions) {
  const auto* p = reinterpret_cast<const int64_t*>(positions.impl().host());
  std::vector<int64_t> offsets(static_cast<size_t>(positions.numel()));
  // Dimensions that lie evenly in memory are counted through in one stride.
  Shape sizes, strides;
  for (int64_t dim : dims) {
    const int64_t size = x.shape()[static_cast<int>(dim)],
                  stride = x.impl().strides[static_cast<int>(dim)];
    const int last = sizes.size() - 1;
    if (last >= 0 && strides[last] == stride * size) {
      sizes[last] *= size;
      strides[last] = stride;
    } else {
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  for (size_t i = 0; i < offsets.size(); ++i) {
    int64_t rest = p[i];
    for (int k = sizes.size() - 1; k > 0; --k) {
      offsets[i] += (rest % sizes[k]) * strides[k];
      rest /= sizes[k];
    }
    if (!sizes.empty()) offsets[i] += rest * strides[0];
  }
  return offsets;
}

Tensor checked_positions(const Tensor& positions, const Shape& x, const Shape& dims,
                         std::string_view op) {
  const Tensor p = dense(positions, kInt64);
  check_index_bounds(p, position_count(x, dims), dims.empty() ? 0 : dims[0], op);
  return p;
}

/// Calls fn(piece, offsets): lines run along the positions, tensor 0 is `rows` (contiguous), tensor
/// 1 the row of x at offset 0.
template <class Fn>
void walk_rows(const Tensor& x, const Shape& dims, const Tensor& positions, const Tensor& rows,
               LineOrder order, Fn fn) {
  const std::vector<int64_t> offsets = offsets_in(x, dims, positions);
  const Shape rest = without(x.shape(), dims);
  Shape strides = contiguous_strides(rows.shape());
  int64_t along = 1;
  for (int i = place_of(dims); i < rest.size(); ++i) along *= rest[i];
  for (int64_t i = 0; i < positions.dim(); ++i) strides.erase(place_of(dims));
  walk_lines<2>(positions.numel(),
                {make_alias(rows, {rest, strides, rows.storage_offset()}),
                 make_alias(x, {rest, without(x.impl().strides, dims), x.storage_offset()})},
                {along, 0}, order, [&](const LinePiece<2>& piece) { fn(piece, offsets.data()); });
}

/// Calls fn(row element, x element) for all, by contiguous runs where there are any.
template <class T, class Fn>
void for_pairs(const LinePiece<2>& p, const int64_t* offsets, Fn fn) {
  if (p.step[0] == 1 && p.step[1] == 1) {
    for (int64_t i = p.begin; i < p.end; ++i) {
      T* row = &p.at<T>(0, 0, i);
      T* x = &p.at<T>(1, 0, 0) + offsets[i];
      for (int64_t j = 0; j < p.lines; ++j) fn(row[j], x[j]);
    }
  } else {
    p.for_each(
        [&](int64_t j, int64_t i) { fn(p.at<T>(0, j, i), (&p.at<T>(1, j, 0))[offsets[i]]); });
  }
}

/// Adds rows in the compute type, those of one position in their order.
void add_rows(const Tensor& out, const Shape& dims, const Tensor& positions, const Tensor& rows) {
  widened(out, [&](const Tensor& wide) {
    const Tensor addend = dense(rows, wide.dtype());
    visit_compute(wide.dtype(), [&]<class T>() {
      walk_rows(wide, dims, positions, addend, LineOrder::kept,
                [](const LinePiece<2>& p, const int64_t* offsets) {
                  for_pairs<T>(p, offsets,
                               [](T& row, T& x) { x = (wrapping(x) + wrapping(row)).v; });
                });
    });
  });
}

/// Rows of x, for Index and its like.
template <class D>
void read(Inputs in, const IndexAttrs& a, const Tensor& out) {
  const Tensor positions = checked_positions(*in[1], in[0]->shape(), a.dims, D::name);
  visit_word(out.dtype(), [&]<class W>() {
    walk_rows(*in[0], a.dims, positions, out, LineOrder::free,
              [](const LinePiece<2>& p, const int64_t* offsets) {
                for_pairs<W>(p, offsets, [](W& row, W& x) { row = x; });
              });
  });
}

/// x with rows written, for IndexPut and its like.
template <class D>
void write(Inputs in, const IndexPutAttrs& a, const Tensor& out) {
  const Tensor positions = checked_positions(*in[1], in[0]->shape(), a.dims, D::name);
  const Tensor values = dense(apart_from(*in[2], out), in[2]->dtype());
  begin_with(out, *in[0]);
  if (a.accumulate) return add_rows(out, a.dims, positions, values);
  visit_word(out.dtype(), [&]<class W>() {
    walk_rows(out, a.dims, positions, values, LineOrder::kept,
              [](const LinePiece<2>& p, const int64_t* offsets) {
                for_pairs<W>(p, offsets, [](W& row, W& x) { x = row; });
              });
  });
}

}  // namespace

template <>
void run<Index>(Inputs in, const Index::Attrs& a, std::span<Tensor> out) {
  read<Index>(in, a, out[0]);
}
template <>
void run<IndexSelect>(Inputs in, const IndexSelect::Attrs& a, std::span<Tensor> out) {
  read<IndexSelect>(in, a, out[0]);
}
template <>
void run<Embedding>(Inputs in, const Embedding::Attrs& a, std::span<Tensor> out) {
  read<Embedding>(in, a, out[0]);
}

template <>
void run<IndexBackward>(Inputs in, const IndexBackward::Attrs& a, std::span<Tensor> out) {
  set_zero(out[0]);
  Tensor positions = checked_positions(*in[1], a.sizes, a.dims, IndexBackward::name), rows = *in[0];
  if (a.skip >= 0) {
    // Rows at the skipped position become zeros.
    rows = Tensor(TensorImpl::empty(in[0]->shape(), in[0]->dtype(), kCPU));
    cpu::copy(rows, *in[0]);
    visit_word(rows.dtype(), [&]<class W>() {
      const auto* p = reinterpret_cast<const int64_t*>(positions.impl().host());
      walk_rows(out[0], a.dims, positions, rows, LineOrder::free,
                [&](const LinePiece<2>& piece, const int64_t*) {
                  piece.for_each([&](int64_t j, int64_t i) {
                    if (p[i] == a.skip) piece.at<W>(0, j, i) = W(0);
                  });
                });
    });
  }
  add_rows(out[0], a.dims, positions, rows);
}

template <>
void run<IndexPut>(Inputs in, const IndexPut::Attrs& a, std::span<Tensor> out) {
  write<IndexPut>(in, a, out[0]);
}
template <>
void run<IndexAdd>(Inputs in, const IndexAdd::Attrs& a, std::span<Tensor> out) {
  write<IndexAdd>(in, a, out[0]);
}

}  // namespace grapnel::cpu
