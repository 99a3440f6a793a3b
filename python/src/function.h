/// autograd.Function: operations with a forward and a backward written in Python.
#pragma once

#include <vector>

#include "grapnel/autograd/function.h"
#include "python/src/held.h"

namespace grapnel::python {

/// What the node of a Python function keeps. Its object may come and go; what is set on it stays
/// here, as long as the node lives.
struct FunctionState {
  Held type, dict, backward;
  autograd::FunctionNode* node = nullptr;
  std::vector<bool> is_tensor;         ///< of the arguments
  std::vector<bool> output_is_tensor;  ///< of what forward returned

  variable_list run_backward(const variable_list& grads) const;
  /// That of a node, or null if Python did not make it.
  static FunctionState* of(const Node& node);
};

/// The type of ctx; each function has a subclass of its own.
PyTypeObject* function_node_type();

}  // namespace grapnel::python
