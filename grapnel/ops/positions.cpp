/// Positions from masks and indices, one-hot vectors, triangles.
#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {

Tensor sample_mask() { return sample_tensor({2, 3}) > 0; }
Tensor sample_classes() { return from_vector<int64_t>({2, 0, 1}); }

/// Fails where there are no rows and columns.
void check_matrix(std::string_view op, const Tensor& x) {
  check(x.dim() >= 2, op, ": a tensor with at least 2 dimensions is expected, got shape ",
        x.shape(), ".");
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
Samples RavelIndex::samples() {
  return {sample({sample_classes(), sample_classes()}, Attrs{{3, 4}, {0, 1}})};
}

Samples MaskPositions::samples() {
  const Tensor mask = sample_mask();
  return {sample({mask}, Attrs{mask.sum().item<int64_t>()})};
}

Samples Nonzero::samples() { return MaskPositions::samples(); }

void OneHot::infer(Inputs in, const Attrs& a, Specs& out) {
  check_index_type(*in[0], name);
  Shape sizes = in[0]->shape();
  sizes.push_back(a.count);
  out.push_back({sizes, kInt64});
}
Outputs OneHot::lower(Inputs in, const Attrs& a) {
  return {(in[0]->unsqueeze(-1) == arange(a.count, in[0]->options().dtype(kInt64))).to(kInt64)};
}
Samples OneHot::samples() { return {sample({sample_classes()}, Attrs{4})}; }

void Tril::infer(Inputs in, const Attrs&, Specs& out) {
  check_matrix(name, *in[0]);
  out.push_back({in[0]->shape(), in[0]->dtype()});
}
void Triu::infer(Inputs in, const Attrs&, Specs& out) {
  check_matrix(name, *in[0]);
  out.push_back({in[0]->shape(), in[0]->dtype()});
}

namespace {
/// How far each element of the last two dimensions lies to the right of the diagonal.
Tensor columns_behind(const Tensor& x, int64_t diagonal) {
  const int64_t rows = x.size(-2), columns = x.size(-1);
  const TensorOptions whole = x.options().dtype(kInt64);
  return arange(columns, whole) - arange(rows, whole).unsqueeze(1) -
         std::clamp(diagonal, -rows, columns);
}
}  // namespace

Outputs Tril::lower(Inputs in, const Attrs& a) {
  return {in[0]->masked_fill(columns_behind(*in[0], a.diagonal) > 0, 0)};
}
Outputs Triu::lower(Inputs in, const Attrs& a) {
  return {in[0]->masked_fill(columns_behind(*in[0], a.diagonal) < 0, 0)};
}

}  // namespace grapnel
