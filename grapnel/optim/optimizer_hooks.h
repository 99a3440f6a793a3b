/// Hooks of optimisers, and how callables become them. Registration is in optimizer.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "grapnel/tensor/hook_list.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::optim {

class Optimizer;
struct OptimizerStateDict;

using OptimizerHookOptions = HookOptions;

/// May replace the closure.
using StepPreHook = std::function<void(Optimizer&, std::function<Tensor()>& closure)>;
using PlainHook = std::function<void(Optimizer&)>;
/// May change or replace the dict.
using DictHook = std::function<void(Optimizer&, OptimizerStateDict&)>;

/// The hooks of an optimiser.
struct OptimizerHooks {
  HookList<StepPreHook> step_pre;
  HookList<PlainHook> step_post, save_pre, load_post;
  HookList<DictHook> save_post, load_pre;
};
/// The hooks of all optimisers.
OptimizerHooks& global_optimizer_hooks();

namespace detail {

using Closure = std::function<Tensor()>;

template <class F>
StepPreHook make_step_pre_hook(F&& hook) {
  using D = std::decay_t<F>;
  constexpr bool with_closure = std::is_invocable_v<D&, Optimizer&, const Closure&>;
  static_assert(with_closure || std::is_invocable_v<D&, Optimizer&>,
                "a step pre-hook is called as hook(Optimizer& [, const LossClosure&])");
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return [f](Optimizer& optimizer, Closure& closure) {
    const auto call = [&]() -> decltype(auto) {
      if constexpr (with_closure) return std::invoke(*f, optimizer, std::as_const(closure));
      else return std::invoke(*f, optimizer);
    };
    using R = decltype(call());
    static_assert(
        std::is_void_v<R> || (with_closure && std::is_convertible_v<R, std::optional<Closure>>),
        "a step pre-hook returns nothing, or given the closure, another one to use instead");
    if constexpr (std::is_void_v<R>) {
      call();
    } else if (std::optional<Closure> replacement = call()) {
      closure = *std::move(replacement);
    }
  };
}

template <class F>
PlainHook make_plain_hook(F&& hook) {
  using D = std::decay_t<F>;
  static_assert(std::is_invocable_v<D&, Optimizer&>, "this hook is called as hook(Optimizer&)");
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return [f](Optimizer& optimizer) { (void)std::invoke(*f, optimizer); };
}

template <class F>
DictHook make_dict_hook(F&& hook) {
  using D = std::decay_t<F>;
  static_assert(std::is_invocable_v<D&, Optimizer&, OptimizerStateDict&>,
                "a state hook is called as hook(Optimizer&, OptimizerStateDict&)");
  using R = std::invoke_result_t<D&, Optimizer&, OptimizerStateDict&>;
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return [f](Optimizer& optimizer, auto& dict) {
    if constexpr (std::is_void_v<R>) {
      std::invoke(*f, optimizer, dict);
    } else if constexpr (std::is_convertible_v<R, std::decay_t<decltype(dict)>>) {
      dict = std::invoke(*f, optimizer, dict);
    } else if (auto replacement = std::invoke(*f, optimizer, dict)) {
      dict = *std::move(replacement);
    }
  };
}

}  // namespace detail
}  // namespace grapnel::optim
