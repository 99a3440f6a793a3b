/// Reading and writing rows at positions.
///
/// Note [Row index]
/// Positions of shape B count, in row-major order, through the dimensions `dims` of x. Each stands
/// for one row: x with those dimensions fixed. In the result the dimensions of B take the place of
/// `dims` when these are neighbours, as in x[:, i, j]; otherwise they come first, as in x[i, :, j].
/// The other dimensions follow in their order.
#include <algorithm>

#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {

bool neighbours(const Shape& dims) {
  return dims.empty() || dims.back() - dims[0] == dims.size() - 1;
}

Shape rows_shape(std::string_view op, const Shape& x, const Shape& dims, const Tensor& index) {
  check_index_type(index, op);
  attrs::dims(op, dims, x.size());
  const Shape& positions = index.shape();
  Shape out = without(x, dims);
  for (int i = 0; i < positions.size(); ++i) out.insert(place_of(dims) + i, positions[i]);
  return out;
}

Tensor sample_positions(std::initializer_list<int64_t> values) {
  return from_vector(std::vector<int64_t>(values));
}

}  // namespace

int place_of(const Shape& dims) {
  return neighbours(dims) && !dims.empty() ? static_cast<int>(dims[0]) : 0;
}

Shape without(Shape values, const Shape& dims) {
  for (int i = dims.size() - 1; i >= 0; --i) values.erase(static_cast<int>(dims[i]));
  return values;
}

void check_index_type(const Tensor& index, std::string_view op) {
  const DType t = index.dtype();
  if (t == kInt64 || t == kInt32) return;
  check(t != kBool, op,
        ": the index is a mask (bool); it must hold positions (i64 or i32).\nUse masked_select, or "
        "x.index({mask}).");
  fail(op, ": the index must hold i64 or i32, got ", t, ".\nConvert it: index.to(kInt64).");
}

void Index::infer(Inputs in, const Attrs& a, Specs& out) {
  out.push_back({rows_shape(name, in[0]->shape(), a.dims, *in[1]), in[0]->dtype()});
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
Grads IndexPut::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  const Tensor positions = s.input(1);
  Tensor of_self = g;
  if (s.needs(0) && !a.accumulate)
    of_self = apply<IndexPut>(a, g, positions,
                              zeros(rows_shape(name, g.shape(), a.dims, positions), g.options()));
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
