/// Updates of parameters, and the pass that runs those of a whole step together.
///
///   return elementwise([=](const Tensor& p, const Tensor& g) { p.add_(g, -lr); }, param, grad);
///
/// In eager mode blocks of all parameters, large and small, are shared out over the threads, and a
/// block goes through all steps of its update while it is in the cache. Code that is being recorded
/// is called on whole tensors, one parameter after the other: the compiler makes one pass of it by
/// itself.
#pragma once

#include <concepts>
#include <functional>
#include <span>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel::optim {

/// What is left to do to one parameter: nothing, or a function of tensors of its shape that treats
/// each element by itself.
struct Update {
  /// The parameter, its gradient, and what is remembered about it; any but the gradient may be
  /// changed. An undefined one stays undefined.
  std::vector<Tensor> tensors = {};
  std::function<void(std::span<const Tensor>)> fn = {};
};

/// Which of them is the gradient.
inline constexpr size_t kUpdateGrad = 1;

/// The update that calls fn(param, grad, state...) on all elements, or on parts of them in any
/// order and on any thread. What `fn` refers to must live until the step ends.
template <class Fn, std::same_as<Tensor>... State>
Update elementwise(Fn fn, const Tensor& param, const Tensor& grad, const State&... state) {
  return {{param, grad, state...}, [fn = std::move(fn)](std::span<const Tensor> parts) {
            [&]<size_t... I>(std::index_sequence<I...>) {
              fn(parts[I]...);
            }(std::make_index_sequence<2 + sizeof...(State)>());
          }};
}

/// The updates of one step, collected and then run in one pass.
class UpdatePass {
 public:
  /// What cannot join the pass is done at once, after all that came before.
  void add(Update update);
  void run();

 private:
  std::vector<Update> updates_;
};

}  // namespace grapnel::optim
