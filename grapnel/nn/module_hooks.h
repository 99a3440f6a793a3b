/// Hooks of modules: what each kind is given and may return, and the lists that hold them.
///
/// | kind                 | called with the Module& and                      | a result replaces |
/// |----------------------|--------------------------------------------------|-------------------|
/// | forward pre          | const Args& [, const Kwargs&]                    | the arguments     |
/// | forward              | const Args& [, const Kwargs&], const Value& out  | the result        |
/// | full backward pre    | const variable_list& grad_output                 | grad_output       |
/// | full backward        | const variable_list& grad_input, grad_output     | grad_input        |
/// | state dict pre       | const std::string& prefix, bool keep_vars        | -                 |
/// | state dict post      | StateDict&, const std::string& prefix, Metadata& | -                 |
/// | load state dict pre  | LoadContext&                                     | -                 |
/// | load state dict post | IncompatibleKeys&                                | -                 |
///
/// A forward pre-hook may return one value for a single argument; with Kwargs it returns nothing or
/// both. A forward hook may take a `const Tensor&` as result. Hooks of one kind run in order of
/// registration, each seeing what the one before returned; global ones go first, prepended ones go
/// to the front of their list. Every list is taken as it is when the call starts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "grapnel/nn/state_dict.h"
#include "grapnel/nn/value.h"
#include "grapnel/tensor/hook_callable.h"
#include "grapnel/tensor/hook_list.h"

namespace grapnel::nn {

class Module;

using ModuleHookOptions = HookOptions;
using ForwardHookOptions = HookOptions;
using BackwardHookOptions = HookOptions;

// --- Hooks as the library calls them ---

/// Replaces the arguments in place.
struct ForwardPreHook {
  std::function<void(Module&, Args&, Kwargs&)> call;
};
/// Replaces the result in place.
struct ForwardHook {
  std::function<void(Module&, const Args&, const Kwargs&, Value& result)> call;
  bool always_call = false;
};
/// A backward pre-hook in its general form.
struct BackwardPreHook {
  std::function<ListHookResult(Module&, const variable_list& grad_output)> call;
};
/// A backward hook in its general form.
struct BackwardHook {
  std::function<ListHookResult(Module&, const variable_list& grad_input,
                               const variable_list& grad_output)>
      call;
  bool after_parameters = false;
};
/// A hook before saving, in its general form.
struct StateDictPreHook {
  std::function<void(Module&, const std::string& prefix, bool keep_vars)> call;
};
/// A hook after saving, in its general form.
struct StateDictPostHook {
  std::function<void(Module&, StateDict&, const std::string& prefix, Metadata&)> call;
};
/// A hook before loading, in its general form.
struct LoadPreHook {
  std::function<void(Module&, LoadContext&)> call;
};
/// A hook after loading, in its general form.
struct LoadPostHook {
  std::function<void(Module&, IncompatibleKeys&)> call;
};

/// The lists of one module, or the global ones.
struct ModuleHooks {
  HookList<ForwardPreHook> forward_pre;
  HookList<ForwardHook> forward;
  HookList<BackwardPreHook> backward_pre;
  HookList<BackwardHook> backward;
  HookList<StateDictPreHook> state_dict_pre;
  HookList<StateDictPostHook> state_dict_post;
  HookList<LoadPreHook> load_pre;
  HookList<LoadPostHook> load_post;

  /// Whether a call has to go through the hooks.
  bool on_calls() const {
    return !forward_pre.empty() || !forward.empty() || !backward_pre.empty() || !backward.empty();
  }
  template <class Fn>
  static void for_each_list(auto& self, Fn&& fn) {
    fn(HookKind::forward_pre, self.forward_pre);
    fn(HookKind::forward, self.forward);
    fn(HookKind::full_backward_pre, self.backward_pre);
    fn(HookKind::full_backward, self.backward);
    fn(HookKind::state_dict_pre, self.state_dict_pre);
    fn(HookKind::state_dict_post, self.state_dict_post);
    fn(HookKind::load_state_dict_pre, self.load_pre);
    fn(HookKind::load_state_dict_post, self.load_post);
  }
};
/// The hooks of all modules.
ModuleHooks& global_module_hooks();

/// The global hooks of a kind, then the module's own, as they are now.
template <class Hook>
typename HookList<Hook>::Entries hooks_now(const HookList<Hook>& global,
                                           const HookList<Hook>& own) {
  typename HookList<Hook>::Entries out;
  for (const auto* list : {&global, &own})
    if (const auto entries = list->snapshot())
      out.insert(out.end(), entries->begin(), entries->end());
  return out;
}

// --- Any callable as a module hook ---

namespace detail {

template <class R>
concept Nothing = std::is_void_v<R>;

/// Takes over what a forward pre-hook returned.
template <class R>
void take_args(R&& result, Args& args) {
  using D = std::decay_t<R>;
  if constexpr (IsOptional<D>::value) {
    if (result) take_args(*std::forward<R>(result), args);
  } else if constexpr (std::is_same_v<D, Args>) {
    args = std::forward<R>(result);
  } else {
    // One value stands for a single argument; an undefined tensor for "unchanged".
    Value value(std::forward<R>(result));
    if (value.is_none() || (value.is_tensor() && !value.toTensor().defined())) return;
    args.clear();
    args.push_back(std::move(value));
  }
}

template <class R>
void take_both(R&& result, Args& args, Kwargs& kwargs) {
  using D = std::decay_t<R>;
  if constexpr (IsOptional<D>::value) {
    if (result) take_both(*std::forward<R>(result), args, kwargs);
  } else {
    static_assert(
        std::is_same_v<D, std::pair<Args, Kwargs>> || std::is_same_v<D, std::tuple<Args, Kwargs>>,
        "a forward pre-hook with Kwargs returns nothing or std::pair<nn::Args, nn::Kwargs>");
    args = std::get<0>(std::forward<R>(result));
    kwargs = std::get<1>(std::forward<R>(result));
  }
}

template <class R>
void take_result(R&& returned, Value& result) {
  Value value(std::forward<R>(returned));
  if (value.is_none() || (value.is_tensor() && !value.toTensor().defined())) return;
  result = std::move(value);
}

template <class F>
ForwardPreHook make_forward_pre_hook(F&& hook) {
  using D = std::decay_t<F>;
  constexpr bool with_kwargs = std::is_invocable_v<D&, Module&, const Args&, const Kwargs&>;
  constexpr bool alone = std::is_invocable_v<D&, Module&, const Args&>;
  static_assert(
      with_kwargs || alone,
      "a forward pre-hook is called as hook(nn::Module&, const nn::Args& [, const nn::Kwargs&])");
  // Shared, so that callables need not be copyable and keep one state.
  auto f = std::make_shared<D>(std::forward<F>(hook));
  if constexpr (with_kwargs) {
    return {[f](Module& m, Args& args, Kwargs& kwargs) {
      const Args& a = args;
      const Kwargs& k = kwargs;
      if constexpr (Nothing<std::invoke_result_t<D&, Module&, const Args&, const Kwargs&>>)
        std::invoke(*f, m, a, k);
      else take_both(std::invoke(*f, m, a, k), args, kwargs);
    }};
  } else {
    return {[f](Module& m, Args& args, Kwargs&) {
      const Args& a = args;
      if constexpr (Nothing<std::invoke_result_t<D&, Module&, const Args&>>) std::invoke(*f, m, a);
      else take_args(std::invoke(*f, m, a), args);
    }};
  }
}

template <class F>
ForwardHook make_forward_hook(F&& hook, bool always_call) {
  using D = std::decay_t<F>;
  constexpr bool kwargs_value =
      std::is_invocable_v<D&, Module&, const Args&, const Kwargs&, const Value&>;
  constexpr bool kwargs_tensor =
      std::is_invocable_v<D&, Module&, const Args&, const Kwargs&, const Tensor&>;
  constexpr bool value = std::is_invocable_v<D&, Module&, const Args&, const Value&>;
  constexpr bool tensor = std::is_invocable_v<D&, Module&, const Args&, const Tensor&>;
  static_assert(kwargs_value || kwargs_tensor || value || tensor,
                "a forward hook is called as hook(nn::Module&, const nn::Args& [, const "
                "nn::Kwargs&], const nn::Value& or const Tensor& result)");
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return {[f](Module& m, const Args& args, [[maybe_unused]] const Kwargs& kwargs, Value& result) {
            const auto call = [&]() -> decltype(auto) {
              const Value& r = result;
              if constexpr (kwargs_value) return std::invoke(*f, m, args, kwargs, r);
              else if constexpr (kwargs_tensor)
                return std::invoke(*f, m, args, kwargs, r.toTensor());
              else if constexpr (value) return std::invoke(*f, m, args, r);
              else return std::invoke(*f, m, args, r.toTensor());
            };
            if constexpr (Nothing<decltype(call())>) call();
            else take_result(call(), result);
          },
          always_call};
}

template <class F>
BackwardPreHook make_backward_pre_hook(F&& hook) {
  using D = std::decay_t<F>;
  static_assert(
      std::is_invocable_v<D&, Module&, const variable_list&>,
      "a full backward pre-hook is called as hook(nn::Module&, const variable_list& grad_output)");
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return {[f](Module& m, const variable_list& grad_output) {
    return list_result([&]() -> decltype(auto) { return std::invoke(*f, m, grad_output); });
  }};
}

template <class F>
BackwardHook make_backward_hook(F&& hook, bool after_parameters) {
  using D = std::decay_t<F>;
  static_assert(std::is_invocable_v<D&, Module&, const variable_list&, const variable_list&>,
                "a full backward hook is called as hook(nn::Module&, const variable_list& "
                "grad_input, const variable_list& grad_output)");
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return {[f](Module& m, const variable_list& grad_input, const variable_list& grad_output) {
            return list_result(
                [&]() -> decltype(auto) { return std::invoke(*f, m, grad_input, grad_output); });
          },
          after_parameters};
}

template <class F, class... A>
concept ReturnsNothing = std::is_void_v<std::invoke_result_t<F&, A...>>;

/// For hooks that must return nothing.
template <class... A, class F>
auto make_silent_hook(F&& hook) {
  using D = std::decay_t<F>;
  static_assert(std::is_invocable_v<D&, A...>,
                "the hook does not take the arguments of its kind: see nn/module_hooks.h");
  static_assert(ReturnsNothing<D, A...>,
                "hooks on saving and loading return nothing: change their arguments instead");
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return [f](A... args) { std::invoke(*f, std::forward<A>(args)...); };
}

}  // namespace detail

// --- Global hooks, called for every module ---

/// A forward pre-hook of all modules.
template <class F>
HookHandle register_module_forward_pre_hook(F&& hook, HookOptions o = {}) {
  return global_module_hooks().forward_pre.add(
      HookKind::forward_pre, detail::make_forward_pre_hook(std::forward<F>(hook)), std::move(o));
}
/// A forward hook of all modules.
template <class F>
HookHandle register_module_forward_hook(F&& hook, HookOptions o = {}) {
  auto callable = detail::make_forward_hook(std::forward<F>(hook), o.always_call);
  return global_module_hooks().forward.add(HookKind::forward, std::move(callable), std::move(o));
}
/// A backward pre-hook of all modules.
template <class F>
HookHandle register_module_full_backward_pre_hook(F&& hook, HookOptions o = {}) {
  return global_module_hooks().backward_pre.add(
      HookKind::full_backward_pre, detail::make_backward_pre_hook(std::forward<F>(hook)),
      std::move(o));
}
/// A backward hook of all modules.
template <class F>
HookHandle register_module_full_backward_hook(F&& hook, HookOptions o = {}) {
  auto callable = detail::make_backward_hook(std::forward<F>(hook), o.after_parameters);
  return global_module_hooks().backward.add(HookKind::full_backward, std::move(callable),
                                            std::move(o));
}

}  // namespace grapnel::nn
