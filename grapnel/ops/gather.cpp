/// gather and scatter: one position per element.
#include <algorithm>

#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/vectors.h"

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

void check_source(const Tensor& x, const Tensor& index, const Tensor& source, std::string_view op) {
  check(source.dtype() == x.dtype(), op, ": the source is ", source.dtype(), " but the tensor is ",
        x.dtype(), ".\nConvert it: source.to(", x.dtype(), ").");
  check(source.shape() == index.shape(), op, ": the source has shape ", source.shape(),
        " and the index ", index.shape(), ".");
}

Tensor sample_index(std::initializer_list<int64_t> values, const Shape& sizes) {
  return from_vector(std::vector<int64_t>(values), sizes);
}
Tensor repeated_index() { return sample_index({0, 2, 2, 1, 1, 1}, {2, 3}); }

}  // namespace

void Gather::infer(Inputs in, const Attrs& a, Specs& out) {
  check_shapes(in[0]->shape(), *in[1], a.dim, name);
  out.push_back({in[1]->shape(), in[0]->dtype()});
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

void Scatter::infer(Inputs in, const Attrs& a, Specs& out) {
  check_shapes(in[0]->shape(), *in[1], a.dim, name);
  check_source(*in[0], *in[1], *in[2], name);
  out.push_back({in[0]->shape(), in[0]->dtype()});
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

}  // namespace grapnel
