/// Do gradients agree with finite differences? For tests of functions built from ops, and of ops
/// themselves.
///
///   auto x = randn({3, 4}, dtype(kFloat64).requires_grad(true));
///   auto f = [](const variable_list& in) -> variable_list { return {in[0].sin().sum()}; };
///   autograd::gradcheck(f, {x});
#pragma once

#include <functional>

#include "grapnel/autograd/engine.h"

namespace grapnel::autograd {

/// Step and tolerances of gradcheck.
struct GradcheckOptions {
  double eps = 1e-6;   ///< how far an input is moved to either side
  double atol = 1e-5;  ///< |backward - differences| <= atol + rtol * |differences|
  double rtol = 1e-3;
  /// An Error that names the worst element; otherwise the answer is false.
  bool raise_exception = true;
};

using CheckedFunction = std::function<variable_list(const variable_list&)>;

/// Compares the gradient of every output element with respect to every element of every input that
/// requires grad, which must be f64. `fn` is called often and must be deterministic; the inputs are
/// moved in place and put back.
bool gradcheck(const CheckedFunction& fn, const variable_list& inputs,
               const GradcheckOptions& options = {});

/// The same for the gradients of `fn`, as functions of its inputs and of `grad_outputs` (made up
/// where not given).
bool gradgradcheck(const CheckedFunction& fn, const variable_list& inputs,
                   const variable_list& grad_outputs = {}, const GradcheckOptions& options = {});

}  // namespace grapnel::autograd
