/// The rules of reductions: what type and shape comes out; gradients and samples that need more than a line.
#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

DType output_type(const Op& op, DType in) {
  switch (op.type_rule) {
    case TypeRule::widen: return is_floating(in) ? in : kInt64;
    case TypeRule::test: return kBool;
    case TypeRule::floating:
      check_as<TypeError>(is_floating(in), op.name, ": not defined for ", in,
                          " values.\nConvert first: x.to(kFloat32).");
      return in;
    default: return in;
  }
}

}  // namespace

void infer_reduction(const Op& op, Inputs inputs, const ReduceAttrs& a, Specs& out) {
  const Tensor& x = *inputs[0];
  attrs::dims(op.name, a.dims, x.shape().size());
  Shape sizes;
  int next = 0;
  for (int i = 0; i < x.dim(); ++i) {
    const bool reduced = next < a.dims.size() && a.dims[next] == i;
    if (reduced) ++next;
    if (!reduced) sizes.push_back(x.shape()[i]);
    else if (a.keepdim) sizes.push_back(1);
  }
  out.push_back({sizes, output_type(op, x.dtype())});
}

Tensor restore_dims(const Tensor& reduced, const ReduceAttrs& attrs) {
  // A tensor without dimensions broadcasts to anything as it is.
  if (attrs.keepdim || attrs.dims.empty() || reduced.dim() == 0) return reduced;
  Shape sizes = reduced.shape();
  for (int64_t d : attrs.dims) sizes.insert(static_cast<int>(d), 1);
  return reduced.view(sizes);
}

Samples sample_reductions() {
  Samples samples;
  samples.push_back(sample({sample_tensor({2, 3, 4})}, ReduceAttrs{.dims = {0, 1, 2}}));
  samples.push_back(sample({sample_tensor({2, 3, 4})}, ReduceAttrs{.dims = {1}}));
  samples.push_back(
      sample({sample_tensor({2, 3, 4})}, ReduceAttrs{.dims = {0, 2}, .keepdim = true}));
  samples.push_back(sample({sample_tensor({})}, ReduceAttrs{}));
  return samples;
}

namespace {

/// Products of x[..., 0 .. i], in log2(n) steps: after a step of s, element i covers the 2s values
/// that end there.
Tensor products_up_to(Tensor x, int64_t n) {
  for (int64_t s = 1; s < n; s *= 2)
    x = cat({x.narrow(-1, 0, s), x.narrow(-1, s, n - s) * x.narrow(-1, 0, n - s)}, -1);
  return x;
}
/// Products of x[..., i .. n).
Tensor products_from(Tensor x, int64_t n) {
  for (int64_t s = 1; s < n; s *= 2)
    x = cat({x.narrow(-1, 0, n - s) * x.narrow(-1, s, n - s), x.narrow(-1, n - s, s)}, -1);
  return x;
}

}  // namespace

Grads Prod::grad(const Saved& s, const Tensor& g) {
  const ReduceAttrs& attrs = s.attrs<ReduceAttrs>();
  const Tensor x = s.input(0);
  // The reduced dimensions go last and become one, so that "the others" are those to the left and
  // to the right.
  Shape order, kept_sizes;
  for (int i = 0, next = 0; i < x.dim(); ++i) {
    if (next < attrs.dims.size() && attrs.dims[next] == i) {
      ++next;
    } else {
      order.push_back(i);
      kept_sizes.push_back(x.shape()[i]);
    }
  }
  int64_t n = 1;
  for (int64_t d : attrs.dims) {
    order.push_back(d);
    n *= x.size(d);
  }
  if (n <= 1) return {restore_dims(g, attrs).expand(x.shape())};
  const Tensor moved = x.permute(order);
  Shape flat = kept_sizes;
  flat.push_back(n);
  const Tensor values = moved.reshape(flat);
  const Tensor left = products_up_to(values, n), right = products_from(values, n);
  const Tensor first = right.narrow(-1, 1, 1), last = left.narrow(-1, n - 2, 1);
  const Tensor others =
      n == 2 ? cat({first, last}, -1)
             : cat({first, left.narrow(-1, 0, n - 2) * right.narrow(-1, 2, n - 2), last}, -1);
  Shape column = kept_sizes;
  column.push_back(1);
  Shape back = Shape::filled(order.size(), 0);
  for (int i = 0; i < order.size(); ++i) back[static_cast<int>(order[i])] = i;
  return {(g.reshape(column) * others).reshape(moved.shape()).permute(back)};
}

Grads Extreme::grad(const Saved& s, const Tensor& g) {
  const ReduceAttrs& attrs = s.attrs<ReduceAttrs>();
  const Tensor mask = s.input(0) == restore_dims(s.output(), attrs);
  return {where(mask, restore_dims(g / apply<Sum>(attrs, mask), attrs), 0.0)};
}

}  // namespace grapnel
