/// Namespace torch::autograd.
#pragma once

#include "grapnel/autograd/gradcheck.h"
#include "grapnel/compat/at.h"

namespace grapnel {
/// The node's address, as LibTorch's pointers print.
inline std::ostream& operator<<(std::ostream& out, const IntrusivePtr<Node>& node) {
  return out << static_cast<const void*>(node.get());
}
}  // namespace grapnel

namespace torch::autograd {

using c10::InferenceMode;
using grapnel::AnomalyMode;
using grapnel::DetectAnomalyGuard;
using grapnel::Edge;
using grapnel::FunctionPostHook;
using grapnel::FunctionPreHook;
using grapnel::GradMode;
using grapnel::Node;
using grapnel::PostAccumulateGradHook;
using grapnel::SavedVariable;
using grapnel::Variable;
using grapnel::variable_list;
using grapnel::autograd::AutogradContext;
using grapnel::autograd::backward;
using grapnel::autograd::Function;
using grapnel::autograd::grad;
using AutoGradMode = grapnel::AutoGradMode;
using tensor_list = std::vector<grapnel::Tensor>;
using edge_list = std::vector<Edge>;

}  // namespace torch::autograd
