/// Hooks on several tensors at once, and a list of what is registered where.
#pragma once

#include <functional>

#include "grapnel/autograd/node.h"

namespace grapnel {

/// all: once per pass, when the last of the tensors that the pass reaches has its gradient;
/// untouched ones are undefined. any: once per pass, with the first gradient computed among the
/// tensors.
enum class MultiGrad : uint8_t { all, any };

namespace autograd {

using AllGradsFn = std::function<void(const variable_list&)>;
using AnyGradFn = std::function<void(const Tensor&)>;
/// What register_multi_grad_hook is made of; call that.
HookHandle register_all_grads_hook(const variable_list& tensors, AllGradsFn fn,
                                   HookOptions options);
/// What register_multi_grad_hook is made of; call that.
HookHandle register_any_grad_hook(const variable_list& tensors, AnyGradFn fn, HookOptions options);
/// What register_multi_post_accumulate_grad_hook is made of; call that.
HookHandle register_all_post_accumulate_hook(const variable_list& leaves, AllGradsFn fn,
                                             HookOptions options);

}  // namespace autograd

/// `hook(const variable_list& grads)` for MultiGrad::all, `hook(const Tensor& grad)` for
/// MultiGrad::any. What it returns is ignored, and it may not change the gradients. One handle
/// removes all parts.
template <class F>
HookHandle register_multi_grad_hook(const variable_list& tensors, F hook,
                                    MultiGrad mode = MultiGrad::all, HookOptions options = {}) {
  constexpr bool takes_all = std::is_invocable_v<F&, const variable_list&>,
                 takes_one = std::is_invocable_v<F&, const Tensor&>;
  static_assert(
      takes_all || takes_one,
      "a multi-gradient hook takes a const variable_list& (all) or a const Tensor& (any)");
  auto shared = std::make_shared<F>(std::move(hook));
  if (mode == MultiGrad::all) {
    if constexpr (takes_all)
      return autograd::register_all_grads_hook(
          tensors, [shared](const variable_list& grads) { (void)(*shared)(grads); },
          std::move(options));
    else
      fail(
          "register_multi_grad_hook: MultiGrad::all calls the hook with a variable_list; this one "
          "takes a single Tensor.");
  }
  check(mode == MultiGrad::any, "register_multi_grad_hook: unknown mode ", static_cast<int>(mode),
        "; use MultiGrad::all or MultiGrad::any.");
  if constexpr (takes_one)
    return autograd::register_any_grad_hook(
        tensors, [shared](const Tensor& grad) { (void)(*shared)(grad); }, std::move(options));
  else
    fail(
        "register_multi_grad_hook: MultiGrad::any calls the hook with a single Tensor; this one "
        "takes a variable_list.");
}

template <class F, HookName N>
HookHandle register_multi_grad_hook(const variable_list& tensors, F hook, MultiGrad mode, N&& name,
                                    base::SourceLine site = std::source_location::current()) {
  return register_multi_grad_hook(tensors, std::move(hook), mode,
                                  HookOptions{.name = std::forward<N>(name), .site = site});
}

/// Calls `hook(leaves)` once per pass, after the grad() of the last of `leaves` that the pass
/// reaches was updated.
template <class F>
HookHandle register_multi_post_accumulate_grad_hook(const variable_list& leaves, F hook,
                                                    HookOptions options = {}) {
  auto shared = std::make_shared<F>(std::move(hook));
  return autograd::register_all_post_accumulate_hook(
      leaves, [shared](const variable_list& all) { (*shared)(all); }, std::move(options));
}

template <class F, HookName N>
HookHandle register_multi_post_accumulate_grad_hook(
    const variable_list& leaves, F hook, N&& name,
    base::SourceLine site = std::source_location::current()) {
  return register_multi_post_accumulate_grad_hook(
      leaves, std::move(hook), HookOptions{.name = std::forward<N>(name), .site = site});
}

/// Whether `loss.backward()` would call the hook: it is registered, and its place is in the graph
/// of `loss`. For hooks of tensors and nodes, post-accumulate hooks, compound hooks (true if any of
/// their tensors is reached) and backward hooks of modules (true if a call of the module that they
/// were registered before is in the graph). A hook on a parameter that the loss does not depend on,
/// or on a module that was not called, never fires, and nobody says so: ask before training. Walks
/// the whole graph.
bool will_fire(const HookHandle& hook, const Tensor& loss);

/// What is registered on a tensor (for a leaf: on its accumulate node, too) or on a node, in firing
/// order.
std::vector<HookInfo> hooks_of(const Tensor& tensor);
std::vector<HookInfo> hooks_of(const Node& node);
inline std::vector<HookInfo> hooks_of(const NodePtr& node) {
  return node ? hooks_of(*node) : std::vector<HookInfo>();
}

}  // namespace grapnel
