/// The rules of reductions: what type and shape comes out.
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/define.h"

namespace grapnel {

namespace {

DType output_type(const Op& op, DType in) {
  switch (op.type_rule) {
    case TypeRule::widen: return is_floating(in) ? in : kInt64;
    case TypeRule::test: return kBool;
    case TypeRule::floating:
      check(is_floating(in), op.name, ": not defined for ", in,
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

}  // namespace grapnel
