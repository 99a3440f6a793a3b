/// The rules of pointwise ops: what types they compute in, and what shape comes out.
#include "grapnel/ops/define.h"

namespace grapnel {

namespace {

/// result_type, with a short way for tensors of one type beside numbers, which yield to floating
/// types.
inline DType common_type(Inputs inputs) {
  const TensorImpl& first = inputs[0]->impl();
  if (first.wrapped_number) return result_type(inputs);
  for (const Tensor* t : inputs.subspan(1)) {
    const TensorImpl& other = t->impl();
    if (other.wrapped_number ? !is_floating(first.dtype) : other.dtype != first.dtype)
      return result_type(inputs);
  }
  return first.dtype;
}

inline DType input_type(const Op& op, Inputs inputs) {
  const DType common =
      op.type_rule == TypeRule::fill
          ? inputs[0]->dtype()
          : common_type(op.type_rule == TypeRule::select ? inputs.subspan(1) : inputs);
  return op.type_rule == TypeRule::floating && !is_floating(common) ? get_default_dtype() : common;
}

bool gives_bool(const Op& op) {
  return op.type_rule == TypeRule::compare || op.type_rule == TypeRule::test;
}

}  // namespace

DType pointwise_input_type(const Op& op, Inputs inputs) { return input_type(op, inputs); }

void infer_pointwise(const Op& op, Inputs inputs, Specs& out) {
  TensorSpec& spec = out.emplace_back(inputs[0]->shape(), kBool);
  for (const Tensor* t : inputs.subspan(1)) {
    const Shape& other = t->shape();
    if (!other.empty() && !(other == spec.sizes))
      spec.sizes = broadcast_shapes(spec.sizes, other, op.name.data());
  }
  if (!gives_bool(op)) spec.dtype = input_type(op, inputs);
}

}  // namespace grapnel
