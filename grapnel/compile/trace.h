/// trace(fn, inputs): what a function would compute, as a Graph, without computing it.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include "grapnel/capture/graph.h"

namespace grapnel {

namespace compiler {
Graph trace_list(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& fn,
                 const std::vector<Tensor>& inputs);
}

/// Calls `fn` on stand-ins for the inputs. Nothing is executed: writes to outside tensors, draws
/// and gradients are undone afterwards. `fn` takes the tensors one by one or as a list, and returns
/// a Tensor or a list of them.
template <class F>
Graph trace(F&& fn, const std::vector<Tensor>& inputs) {
  return compiler::trace_list(
      [&](const std::vector<Tensor>& x) -> std::vector<Tensor> {
        auto as_list = [](auto&& result) -> std::vector<Tensor> {
          if constexpr (std::is_convertible_v<decltype(result), Tensor>) return {Tensor(result)};
          else return std::vector<Tensor>(std::begin(result), std::end(result));
        };
        auto call = [&](auto&&... args) -> std::vector<Tensor> {
          if constexpr (std::is_void_v<std::invoke_result_t<F&, decltype(args)...>>) {
            std::invoke(fn, args...);
            return {};
          } else {
            return as_list(std::invoke(fn, args...));
          }
        };
        if constexpr (std::is_invocable_v<F&, const std::vector<Tensor>&> &&
                      !std::is_invocable_v<F&, Tensor>) {
          return call(x);
        } else if constexpr (std::is_invocable_v<F&>) {
          return call();
        } else if constexpr (std::is_invocable_v<F&, Tensor>) {
          check(x.size() == 1, "trace: the function takes one tensor, got ", x.size(), ".");
          return call(x[0]);
        } else if constexpr (std::is_invocable_v<F&, Tensor, Tensor>) {
          check(x.size() == 2, "trace: the function takes two tensors, got ", x.size(), ".");
          return call(x[0], x[1]);
        } else if constexpr (std::is_invocable_v<F&, Tensor, Tensor, Tensor>) {
          check(x.size() == 3, "trace: the function takes three tensors, got ", x.size(), ".");
          return call(x[0], x[1], x[2]);
        } else {
          static_assert(
              std::is_invocable_v<F&, Tensor, Tensor, Tensor, Tensor>,
              "trace: pass a function of at most four tensors, or of a std::vector<Tensor>");
          check(x.size() == 4, "trace: the function takes four tensors, got ", x.size(), ".");
          return call(x[0], x[1], x[2], x[3]);
        }
      },
      inputs);
}

}  // namespace grapnel
