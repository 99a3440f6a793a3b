/// Activation checkpointing: trades memory for time by running a part of the forward pass again
/// during backward.
#pragma once

#include <functional>

#include "grapnel/tensor/tensor.h"

namespace grapnel::autograd {

using CheckpointFn = std::function<variable_list(const variable_list&)>;

/// Runs `fn(inputs)` without keeping the tensors it saves; the first node of it that runs backward
/// runs `fn` again, with the same random numbers. `fn` must do the same both times. It may use
/// further tensors that require grad (parameters); every hook fires exactly as without
/// checkpointing.
variable_list checkpoint(CheckpointFn fn, const variable_list& inputs);

/// The same for one tensor in, one out.
template <class F>
Tensor checkpoint(F fn, const Tensor& input) {
  return checkpoint(
      CheckpointFn([fn](const variable_list& in) mutable { return variable_list{fn(in[0])}; }),
      variable_list{input})[0];
}

}  // namespace grapnel::autograd
