/// A plain number as the operand of one call.
#pragma once

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// Like wrap_number, for as long as the call takes: the header that stands for the number is used
/// again by the next number of this thread, unless the call kept it, as some gradients do.
class NumberOperand {
 public:
  explicit NumberOperand(const Scalar& value);
  ~NumberOperand();
  NumberOperand(const NumberOperand&) = delete;
  NumberOperand& operator=(const NumberOperand&) = delete;

  operator const Tensor&() const { return tensor_; }

 private:
  Tensor tensor_;
};

}  // namespace grapnel
