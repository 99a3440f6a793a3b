/// invoke and opaque: functions that a recording does not look into.
///
/// `invoke(f, x)` is `f(x)` with gradient recording off. While a function is being compiled or
/// traced it becomes one op of the graph, which calls `f` when the graph runs; inside a compiled
/// backward pass `f` is entered and its ops become part of the graph. `opaque(f)` is a callable
/// that stays one op everywhere: a hook that logs, reads values or talks to the world.
///
/// A result has the sizes, strides and type of the first argument. The function is called once per
/// run, in order with the other such calls, whatever else is dropped or merged, and has no gradient
/// of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

namespace invoke_detail {

/// Tensors in, tensors out; an undefined result means "unchanged".
using Body = std::function<variable_list(const variable_list&)>;
/// An effect is opaque, but no code of the user's that must run in eager's order: it may run after
/// hooks that were called later.
enum class Kind : uint8_t { traced, opaque, effect };
/// Runs or records the call. The first `outputs` inputs say what the results look like.
variable_list call(Kind kind, Body body, const variable_list& inputs, size_t outputs);

/// What a function returned, as a list.
template <class Call>
variable_list results_of(Call&& call) {
  using R = std::invoke_result_t<Call&>;
  if constexpr (std::is_void_v<R>) {
    call();
    return {};
  } else if constexpr (std::is_convertible_v<R, Tensor>) {
    return {Tensor(call())};
  } else if constexpr (std::is_same_v<R, std::optional<Tensor>>) {
    return {call().value_or(Tensor())};
  } else if constexpr (std::is_same_v<R, std::optional<variable_list>>) {
    return call().value_or(variable_list());
  } else {
    return variable_list(call());
  }
}
/// The list as what the function returns.
template <class R>
R as_result(variable_list list) {
  if constexpr (std::is_void_v<R>) return;
  else if constexpr (std::is_convertible_v<Tensor, R>) return R(std::move(list[0]));
  else return R(std::move(list));
}

template <class F, class... T>
  requires(std::is_same_v<T, Tensor> && ...)
auto apply(Kind kind, const std::shared_ptr<F>& f, const T&... tensors) {
  using R = std::invoke_result_t<F&, const T&...>;
  auto body = [f](const variable_list& x) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return results_of([&]() -> R { return std::invoke(*f, x[I]...); });
    }(std::index_sequence_for<T...>{});
  };
  return as_result<R>(call(kind, std::move(body), {tensors...}, std::is_void_v<R> ? 0 : 1));
}

/// Node hooks: one list, or the gradients of a node's inputs and of its outputs.
template <class F>
auto apply(Kind kind, const std::shared_ptr<F>& f, const variable_list& list) {
  using R = std::invoke_result_t<F&, const variable_list&>;
  auto body = [f](const variable_list& x) {
    return results_of([&]() -> R { return std::invoke(*f, x); });
  };
  return as_result<R>(call(kind, std::move(body), list, std::is_void_v<R> ? 0 : list.size()));
}
template <class F>
auto apply(Kind kind, const std::shared_ptr<F>& f, const variable_list& first,
           const variable_list& second) {
  using R = std::invoke_result_t<F&, const variable_list&, const variable_list&>;
  variable_list all = first;
  all.insert(all.end(), second.begin(), second.end());
  auto body = [f, split = static_cast<ptrdiff_t>(first.size())](const variable_list& x) {
    return results_of([&]() -> R {
      return std::invoke(*f, variable_list(x.begin(), x.begin() + split),
                         variable_list(x.begin() + split, x.end()));
    });
  };
  return as_result<R>(call(kind, std::move(body), all, std::is_void_v<R> ? 0 : first.size()));
}

}  // namespace invoke_detail

/// A callable that recordings call but never enter.
template <class F>
class Opaque {
 public:
  explicit Opaque(F f) : f_(std::make_shared<F>(std::move(f))) {}
  template <class... Args>
    requires std::invocable<F&, const Args&...>
  auto operator()(const Args&... args) const {
    return invoke_detail::apply(invoke_detail::Kind::opaque, f_, args...);
  }

 private:
  std::shared_ptr<F> f_;
};
/// Marks a hook or function as opaque: compiled code calls it when it runs instead of recording
/// what it computes.
template <class F>
auto opaque(F&& f) {
  return Opaque<std::decay_t<F>>(std::forward<F>(f));
}
template <class F>
inline constexpr bool is_opaque<Opaque<F>> = true;

/// Calls `f`, or records that it will be called.
template <class F, class... Args>
auto invoke(F&& f, const Args&... args) {
  using D = std::decay_t<F>;
  constexpr auto kind = is_opaque<D> ? invoke_detail::Kind::opaque : invoke_detail::Kind::traced;
  return invoke_detail::apply(kind, std::make_shared<D>(std::forward<F>(f)), args...);
}

}  // namespace grapnel
