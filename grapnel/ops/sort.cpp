/// Sorting and extremes.
#include "grapnel/ops/defs/sort.h"

#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

Shape reduced_shape(const Tensor& x, const ExtremeAttrs& a, std::string_view op) {
  Shape sizes = x.shape();
  const int dim = attrs::dim(op, a.dim, sizes.size());
  if (sizes.empty()) return sizes;
  check(sizes[dim] > 0, op, ": dimension ", a.dim,
        " has size 0, and nothing has no extreme (shape ", x.shape(), ").");
  if (a.keepdim) sizes[dim] = 1;
  else sizes.erase(dim);
  return sizes;
}

}  // namespace

Grads picked_grad(const Saved& s, const Grads& g, int64_t dim, bool keeps_dim) {
  if (!g[0].defined()) return {Tensor()};
  const bool flat = keeps_dim || s.input_shape(0).empty();
  const Tensor values = flat ? g[0] : g[0].unsqueeze(dim),
               positions = flat ? s.output(1) : s.output(1).unsqueeze(dim);
  return {apply<GatherBackward>({dim, s.input_shape(0)}, values, positions)};
}

void Sort::infer(Inputs in, const Attrs& a, Specs& out) {
  attrs::dim(name, a.dim, in[0]->shape().size());
  out.push_back({in[0]->shape(), in[0]->dtype()});
  out.push_back({in[0]->shape(), kInt64});
}

void Topk::infer(Inputs in, const Attrs& a, Specs& out) {
  Shape sizes = in[0]->shape();
  const int dim = attrs::dim(name, a.dim, sizes.size());
  const int64_t size = sizes.empty() ? 1 : sizes[dim];
  check(a.k >= 0 && a.k <= size, "topk: k is ", a.k, ", but dimension ", dim, " has ", size,
        " elements (shape ", sizes, ").");
  if (!sizes.empty()) sizes[dim] = a.k;
  out.push_back({sizes, in[0]->dtype()});
  out.push_back({sizes, kInt64});
}

namespace {
void infer_pair(const Tensor& x, const ExtremeAttrs& a, std::string_view op, Specs& out) {
  const Shape sizes = reduced_shape(x, a, op);
  out.push_back({sizes, x.dtype()});
  out.push_back({sizes, kInt64});
}
}  // namespace

void MaxAlong::infer(Inputs in, const Attrs& a, Specs& out) { infer_pair(*in[0], a, name, out); }
void MinAlong::infer(Inputs in, const Attrs& a, Specs& out) { infer_pair(*in[0], a, name, out); }

void Argmax::infer(Inputs in, const Attrs& a, Specs& out) {
  out.push_back({reduced_shape(*in[0], a, name), kInt64});
}
void Argmin::infer(Inputs in, const Attrs& a, Specs& out) {
  out.push_back({reduced_shape(*in[0], a, name), kInt64});
}

}  // namespace grapnel
