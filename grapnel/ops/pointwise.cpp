/// The rules of pointwise ops: what types they compute in, and what shape comes out.
#include "grapnel/ops/define.h"

namespace grapnel {

namespace {

bool gives_bool(const Op& op) {
  return op.type_rule == TypeRule::compare || op.type_rule == TypeRule::test;
}

}  // namespace

DType pointwise_input_type(const Op& op, Inputs inputs) {
  return pointwise::input_type(op, inputs);
}

void infer_pointwise(const Op& op, Inputs inputs, Specs& out) {
  TensorSpec& spec = out.emplace_back(inputs[0]->shape(), kBool);
  for (const Tensor* t : inputs.subspan(1)) {
    const Shape& other = t->shape();
    if (!other.empty() && !(other == spec.sizes))
      spec.sizes = broadcast_shapes(spec.sizes, other, op.name.data());
  }
  if (!gives_bool(op)) spec.dtype = pointwise::input_type(op, inputs);
}

}  // namespace grapnel
