/// Wraps any callable of a fitting signature into a hook, and refuses the others at compile time
/// with a sentence.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "grapnel/tensor/function_hook.h"
#include "grapnel/tensor/owner_search.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// What a hook returned, as a tensor: undefined stands for "nothing".
inline Tensor hook_result(Tensor result) { return result; }
inline Tensor hook_result(std::optional<Tensor> result) {
  return result ? std::move(*result) : Tensor();
}

/// What a list hook returned: no value stands for "unchanged".
using ListHookResult = std::optional<variable_list>;

template <class F>
class CallableTensorHook final : public TensorHook {
 public:
  static constexpr bool with_context = std::is_invocable_v<F&, const Tensor&, const HookContext&>;
  static constexpr bool alone = std::is_invocable_v<F&, const Tensor&>;
  static constexpr bool as_list = std::is_base_of_v<FunctionPreHook, F>;
  static_assert(with_context || alone || as_list,
                "a tensor hook is called as hook(const Tensor& grad) or hook(const Tensor& grad, "
                "const HookContext&)");

  explicit CallableTensorHook(F f) : f_(std::move(f)) {}
  Tensor call(const Tensor& grad, const HookContext& context) override {
    if constexpr (as_list) {
      variable_list result = f_(variable_list{grad});
      check(result.size() <= 1, "a tensor hook returned ", result.size(),
            " gradients for one tensor.");
      return result.empty() ? Tensor() : std::move(result[0]);
    } else if constexpr (with_context) {
      return finish([&]() -> decltype(auto) { return std::invoke(f_, grad, context); });
    } else {
      return finish([&]() -> decltype(auto) { return std::invoke(f_, grad); });
    }
  }
  void compiled_args(CompiledNodeArgs& args) const override {
    if constexpr (DeclaresItself<F>) f_.compiled_args(args);
  }
  bool opaque() const override { return is_opaque<F>; }
  const void* foreign() const override { return foreign_part_of(f_); }

 private:
  template <class Call>
  Tensor finish(Call&& call) {
    using R = decltype(call());
    static_assert(std::is_void_v<R> || std::is_convertible_v<R, Tensor> ||
                      std::is_convertible_v<R, std::optional<Tensor>>,
                  "a tensor hook returns nothing, a Tensor or std::optional<Tensor>");
    if constexpr (std::is_void_v<R>) {
      call();
      return Tensor();
    } else {
      return hook_result(call());
    }
  }
  F f_;
};

template <class F>
class CallablePostAccumulateHook final : public PostAccumulateGradHook {
 public:
  static_assert(std::is_invocable_v<F&, const Tensor&>,
                "a post-accumulate hook is called as hook(const Tensor& leaf)");
  static_assert(std::is_void_v<std::invoke_result_t<F&, const Tensor&>>,
                "a post-accumulate hook gets the leaf, not its gradient, and returns nothing: "
                "change leaf.grad() instead");
  explicit CallablePostAccumulateHook(F f) : f_(std::move(f)) {}
  void operator()(const Tensor& leaf) override { std::invoke(f_, leaf); }
  void compiled_args(CompiledNodeArgs& args) const override {
    if constexpr (DeclaresItself<F>) f_.compiled_args(args);
  }
  bool opaque() const override { return is_opaque<F>; }
  const void* foreign() const override { return foreign_part_of(f_); }

 private:
  F f_;
};

/// The list a hook returned, from any of the forms a list hook may have.
template <class Call>
ListHookResult list_result(Call&& call) {
  using R = decltype(call());
  static_assert(std::is_void_v<R> || std::is_convertible_v<R, variable_list> ||
                    std::is_convertible_v<R, std::optional<variable_list>>,
                "a node hook returns nothing, a variable_list or std::optional<variable_list>");
  if constexpr (std::is_void_v<R>) {
    call();
    return std::nullopt;
  } else {
    return ListHookResult(call());
  }
}

template <class F>
HookHandle Tensor::register_hook(F&& hook, HookOptions options) const {
  using D = std::decay_t<F>;
  if constexpr (std::is_convertible_v<D, std::shared_ptr<TensorHook>>) {
    return add_tensor_hook(std::forward<F>(hook), std::move(options));
  } else {
    auto callable = make_hook_on<CallableTensorHook<D>>(*this, HookKind::tensor, options,
                                                        std::forward<F>(hook));
    return add_tensor_hook(std::move(callable), std::move(options));
  }
}

template <class F>
HookHandle Tensor::register_post_accumulate_grad_hook(F&& hook, HookOptions options) const {
  using D = std::decay_t<F>;
  if constexpr (std::is_convertible_v<D, std::shared_ptr<PostAccumulateGradHook>>) {
    return add_post_accumulate_hook(std::forward<F>(hook), std::move(options));
  } else if constexpr (std::is_base_of_v<PostAccumulateGradHook, D>) {
    auto callable =
        make_hook_on<D>(*this, HookKind::post_accumulate, options, std::forward<F>(hook));
    return add_post_accumulate_hook(std::move(callable), std::move(options));
  } else {
    auto callable = make_hook_on<CallablePostAccumulateHook<D>>(*this, HookKind::post_accumulate,
                                                                options, std::forward<F>(hook));
    return add_post_accumulate_hook(std::move(callable), std::move(options));
  }
}

}  // namespace grapnel
