/// Reading and writing rows at positions.
///
/// Note [Row index]
/// Positions of shape B count, in row-major order, through the dimensions `dims` of x. Each stands
/// for one row: x with those dimensions fixed. In the result the dimensions of B take the place of
/// `dims` when these are neighbours, as in x[:, i, j]; otherwise they come first, as in x[i, :, j].
/// The other dimensions follow in their order.
#include <cstring>

#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/lines.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

bool neighbours(const Shape& dims) {
  return dims.empty() || dims.back() - dims[0] == dims.size() - 1;
}

/// How many of the other dimensions come before those of the positions.
int place_of(const Shape& dims) {
  return neighbours(dims) && !dims.empty() ? static_cast<int>(dims[0]) : 0;
}

/// Leaves out `dims`.
Shape without(Shape values, const Shape& dims) {
  for (int i = dims.size() - 1; i >= 0; --i) values.erase(static_cast<int>(dims[i]));
  return values;
}

Shape rows_shape(std::string_view op, const Shape& x, const Shape& dims, const Tensor& index) {
  check_index_type(index, op);
  attrs::dims(op, dims, x.size());
  const Shape& positions = index.shape();
  Shape out = without(x, dims);
  for (int i = 0; i < positions.size(); ++i) out.insert(place_of(dims) + i, positions[i]);
  return out;
}

int64_t position_count(const Shape& x, const Shape& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= x[static_cast<int>(d)];
  return n;
}

/// How far from the start of x each position is, in elements.
std::vector<int64_t> offsets_in(const Tensor& x, const Shape& dims, const Tensor& positions) {
  const auto* p = reinterpret_cast<const int64_t*>(positions.impl().data());
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
  raw_widened(out, [&](const Tensor& wide) {
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

Tensor sample_positions(std::initializer_list<int64_t> values) {
  Tensor t(TensorImpl::empty({static_cast<int64_t>(values.size())}, kInt64));
  std::copy(values.begin(), values.end(), reinterpret_cast<int64_t*>(t.impl().data()));
  return t;
}

}  // namespace

void Index::infer(Inputs in, const Attrs& a, Specs& out) {
  out.push_back({rows_shape(name, in[0]->shape(), a.dims, *in[1]), in[0]->dtype()});
}
void Index::read(Inputs in, const Attrs& a, const Tensor& out, std::string_view op) {
  const Tensor positions = checked_positions(*in[1], in[0]->shape(), a.dims, op);
  visit_word(out.dtype(), [&]<class W>() {
    walk_rows(*in[0], a.dims, positions, out, LineOrder::free,
              [](const LinePiece<2>& p, const int64_t* offsets) {
                for_pairs<W>(p, offsets, [](W& row, W& x) { row = x; });
              });
  });
}
Grads Index::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  return {apply<IndexBackward>({s.input_shape(0), a.dims, a.skip}, g, s.input(1)), Tensor()};
}
Samples Index::samples() {
  return {sample({sample_tensor({3, 2}), sample_positions({2, 0, 2, 1})}, Attrs{{0}}),
          sample({sample_tensor({2, 3, 2}), sample_positions({5, 0, 5})}, Attrs{{0, 1}}),
          sample({sample_tensor({2, 3, 2}), sample_positions({3, 1})}, Attrs{{0, 2}})};
}

void IndexBackward::infer(Inputs in, const Attrs& a, Specs& out) {
  checked_numel(a.sizes, name.data());
  const Shape rows = rows_shape(name, a.sizes, a.dims, *in[1]);
  check(in[0]->shape() == rows, name, ": the positions select ", rows, " of a tensor of shape ",
        a.sizes, ", but the gradient has shape ", in[0]->shape(), ".");
  out.push_back({a.sizes, in[0]->dtype()});
}
void IndexBackward::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  raw_zero(out[0]);
  Tensor positions = checked_positions(*in[1], a.sizes, a.dims, name), rows = *in[0];
  if (a.skip >= 0) {
    // Rows at the skipped position become zeros.
    rows = Tensor(TensorImpl::empty(in[0]->shape(), in[0]->dtype()));
    copy_elements(rows, *in[0]);
    visit_word(rows.dtype(), [&]<class W>() {
      const auto* p = reinterpret_cast<const int64_t*>(positions.impl().data());
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
Grads IndexBackward::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  const Tensor positions = s.input(1);
  Tensor rows = index_rows(g, a.dims, positions);
  if (a.skip >= 0) {
    Tensor skipped = positions == a.skip;
    for (int64_t i = place_of(a.dims) + positions.dim(); i < rows.dim(); ++i)
      skipped = skipped.unsqueeze(-1);
    rows = rows.masked_fill(skipped, 0);
  }
  return {rows, Tensor()};
}
Samples IndexBackward::samples() {
  return {sample({sample_tensor({4, 2}), sample_positions({2, 0, 2, 1})}, Attrs{{3, 2}, {0}}),
          sample({sample_tensor({4, 2}), sample_positions({2, 0, 2, 1})}, Attrs{{3, 2}, {0}, 2}),
          sample({sample_tensor({3, 2}), sample_positions({5, 0, 5})}, Attrs{{2, 3, 2}, {0, 1}})};
}

void IndexPut::infer(Inputs in, const Attrs& a, Specs& out) {
  const Tensor &x = *in[0], &values = *in[2];
  const Shape expected = rows_shape(name, x.shape(), a.dims, *in[1]);
  check(values.shape() == expected, name, ": the positions select ", expected,
        " of a tensor of shape ", x.shape(), ", but the values have shape ", values.shape(), ".");
  check(values.dtype() == x.dtype(), name, ": the values are ", values.dtype(),
        " but the tensor is ", x.dtype(), ".\nConvert them: values.to(", x.dtype(), ").");
  out.push_back({x.shape(), x.dtype()});
}
void IndexPut::write(Inputs in, const Attrs& a, const Tensor& out, std::string_view op) {
  const Tensor positions = checked_positions(*in[1], in[0]->shape(), a.dims, op);
  const Tensor values = dense(raw_apart(*in[2], out), in[2]->dtype());
  raw_begin_with(out, *in[0]);
  if (a.accumulate) return add_rows(out, a.dims, positions, values);
  visit_word(out.dtype(), [&]<class W>() {
    walk_rows(out, a.dims, positions, values, LineOrder::kept,
              [](const LinePiece<2>& p, const int64_t* offsets) {
                for_pairs<W>(p, offsets, [](W& row, W& x) { x = row; });
              });
  });
}
Grads IndexPut::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  const Tensor positions = s.input(1);
  Tensor of_self = g;
  if (s.needs(0) && !a.accumulate)
    of_self = apply<IndexPut>(a, g, positions,
                              zeros(rows_shape(name, g.shape(), a.dims, positions), g.dtype()));
  return {of_self, Tensor(), s.needs(2) ? index_rows(g, a.dims, positions) : Tensor()};
}
Samples IndexPut::samples() {
  return {sample({sample_tensor({3, 2}), sample_positions({2, 0}), sample_tensor({2, 2}, 1, 2)},
                 Attrs{{0}, false}),
          sample({sample_tensor({3, 2}), sample_positions({2, 0, 2}), sample_tensor({3, 2}, 1, 2)},
                 Attrs{{0}, true})};
}

Tensor index_rows(const Tensor& x, const Shape& dims, const Tensor& positions) {
  return apply<Index>({dims}, x, positions);
}

}  // namespace grapnel
