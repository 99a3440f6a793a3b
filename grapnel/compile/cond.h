/// cond(pred, f, g, operands): a branch that data decides, without a graph break.
#pragma once

#include <functional>
#include <type_traits>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

namespace compiler {
using Branch = std::function<variable_list(const variable_list&)>;
variable_list cond(const Tensor& pred, Branch if_true, Branch if_false,
                   const variable_list& operands);

/// A function of one to three tensors, or of a list, as a function of a list.
template <class F>
Branch as_branch(F f) {
  return [f](const variable_list& x) mutable -> variable_list {
    if constexpr (std::is_invocable_r_v<Tensor, F&, const Tensor&>) {
      check(x.size() == 1, "cond: a branch takes one tensor, got ", x.size(), " operands.");
      return {f(x[0])};
    } else if constexpr (std::is_invocable_r_v<Tensor, F&, const Tensor&, const Tensor&>) {
      check(x.size() == 2, "cond: a branch takes two tensors, got ", x.size(), " operands.");
      return {f(x[0], x[1])};
    } else if constexpr (std::is_invocable_r_v<Tensor, F&, const Tensor&, const Tensor&,
                                               const Tensor&>) {
      check(x.size() == 3, "cond: a branch takes three tensors, got ", x.size(), " operands.");
      return {f(x[0], x[1], x[2])};
    } else {
      static_assert(
          std::is_invocable_r_v<Tensor, F&, const variable_list&>,
          "a branch of cond takes up to three tensors or a variable_list, and returns a Tensor");
      return {f(x)};
    }
  };
}
}  // namespace compiler

/// `f(operands)` if `pred`, one element, is true, else `g(operands)`. While recording, the graph
/// decides when it runs. Both branches must give results of one shape and type, use no other tensor
/// that is being recorded or wants a gradient, register no hooks and write to nothing that existed
/// before.
template <class F, class G>
Tensor cond(const Tensor& pred, F f, G g, const variable_list& operands) {
  return compiler::cond(pred, compiler::as_branch(std::move(f)),
                              compiler::as_branch(std::move(g)), operands)[0];
}
template <class F, class G>
Tensor cond(const Tensor& pred, F f, G g, const Tensor& operand) {
  return cond(pred, std::move(f), std::move(g), variable_list{operand});
}

}  // namespace grapnel
