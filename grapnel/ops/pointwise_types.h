/// Which type a pointwise op computes in, for those who ask once per call.
#pragma once

#include "grapnel/ops/define.h"

namespace grapnel::pointwise {

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

}  // namespace grapnel::pointwise
