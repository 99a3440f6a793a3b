/// Calling a module with its hooks: `net(x)` for a holder, `nn::call(module, x)` for any module.
/// `module.forward(x)` runs no hooks.
///
/// Order of a call: global and own forward pre-hooks, forward, global and own forward hooks; around
/// it the nodes of backward_call.h. Arguments and results become Values only if there are hooks;
/// otherwise the call is forward itself.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "grapnel/base/place.h"
#include "grapnel/nn/module.h"

namespace grapnel::nn {

namespace detail {

/// Whether forward of M is the user's code, which has places of its own.
template <class M>
constexpr bool is_users_module() {
  return std::string_view(__PRETTY_FUNCTION__).find("M = grapnel::nn::") == std::string_view::npos;
}

/// A call under way: tells messages which module it is.
class CallScope final : public base::Place {
 public:
  CallScope(const Module& module, const void* return_address, bool users) noexcept
      : Place(Kind::module), module_(module), site_(return_address, users) {}
  ~CallScope() = default;
  std::shared_ptr<const base::Remembered> remember() const override;

 private:
  friend class ModulePath;
  const Module& module_;
  mutable const ModulePath* path_ = nullptr;
  const base::ModuleCallSite site_;
};

using ForwardFn = std::function<Value(Args&, Kwargs&)>;
/// One call with all its hooks.
Value call_with_hooks(Module& module, Args args, Kwargs kwargs, const ForwardFn& forward);
[[noreturn]] void wrong_argument_count(const Module& module, size_t got, size_t expected);
void check_no_kwargs(const Module& module, const Kwargs& kwargs);

/// The parameters of a forward that is one plain function; others are called with the types at the
/// call site.
template <class F>
struct Signature;
template <class R, class M, class... P>
struct Signature<R (M::*)(P...)> {
  using Params = std::tuple<P...>;
};
template <class R, class M, class... P>
struct Signature<R (M::*)(P...) const> : Signature<R (M::*)(P...)> {};
template <class R, class M, class... P>
struct Signature<R (M::*)(P...) noexcept> : Signature<R (M::*)(P...)> {};
template <class R, class M, class... P>
struct Signature<R (M::*)(P...) const noexcept> : Signature<R (M::*)(P...)> {};

template <class M>
concept HasOneForward = requires { &M::forward; };

template <class T>
constexpr bool is_kwargs = std::is_same_v<std::remove_cvref_t<T>, Kwargs>;

template <class Tuple>
struct LastIsKwargs : std::false_type {};
template <class... P>
  requires(sizeof...(P) > 0)
struct LastIsKwargs<std::tuple<P...>>
    : std::bool_constant<is_kwargs<std::tuple_element_t<sizeof...(P) - 1, std::tuple<P...>>>> {};

/// Calls forward with the first `sizeof...(i)` of Params taken from `args`, and with `kwargs` if it
/// wants them.
template <class Params, bool takes_kwargs, class M, size_t... i>
Value forward_values(M& module, Args& args, Kwargs& kwargs, std::index_sequence<i...>) {
  std::tuple<std::remove_cvref_t<std::tuple_element_t<i, Params>>...> values{
      args[i].template to<std::remove_cvref_t<std::tuple_element_t<i, Params>>>()...};
  const auto run = [&]() -> decltype(auto) {
    if constexpr (takes_kwargs)
      return module.forward(std::forward<std::tuple_element_t<i, Params>>(std::get<i>(values))...,
                            kwargs);
    else
      return module.forward(std::forward<std::tuple_element_t<i, Params>>(std::get<i>(values))...);
  };
  if constexpr (std::is_void_v<decltype(run())>) {
    run();
    return Value();
  } else {
    return Value(run());
  }
}

template <class Params, class M, size_t... i>
constexpr bool callable_with(std::index_sequence<i...>) {
  return requires(M& m) { m.forward(std::declval<std::tuple_element_t<i, Params>>()...); };
}

/// Calls a forward of known parameters with as many arguments as there are; missing ones take their
/// defaults.
template <class M, size_t n>
Value forward_any_count(M& module, Args& args, Kwargs& kwargs) {
  using Params = typename Signature<decltype(&M::forward)>::Params;
  constexpr bool takes_kwargs = LastIsKwargs<Params>::value;
  constexpr size_t most = std::tuple_size_v<Params> - (takes_kwargs ? 1 : 0);
  if constexpr (n > most) {
    wrong_argument_count(module, args.size(), most);
  } else {
    if (args.size() != n) return forward_any_count<M, n + 1>(module, args, kwargs);
    if constexpr (!takes_kwargs) check_no_kwargs(module, kwargs);
    if constexpr (n == most ||
                  (!takes_kwargs && callable_with<Params, M>(std::make_index_sequence<n>())))
      return forward_values<Params, takes_kwargs>(module, args, kwargs,
                                                  std::make_index_sequence<n>());
    else wrong_argument_count(module, args.size(), most);
  }
}

/// Calls forward with values, as if it had been called with arguments of the types A (without
/// Kwargs).
template <class M, class... A>
Value forward_from_values(M& module, Args& args, Kwargs& kwargs, bool with_kwargs) {
  if constexpr (HasOneForward<M>) {
    return forward_any_count<M, 0>(module, args, kwargs);
  } else {
    using Params = std::tuple<std::decay_t<A>...>;
    if (args.size() != sizeof...(A)) wrong_argument_count(module, args.size(), sizeof...(A));
    if constexpr (requires { module.forward(std::declval<std::decay_t<A>>()..., kwargs); }) {
      if (with_kwargs)
        return forward_values<Params, true>(module, args, kwargs, std::index_sequence_for<A...>());
    }
    if constexpr (requires { module.forward(std::declval<std::decay_t<A>>()...); }) {
      check_no_kwargs(module, kwargs);
      return forward_values<Params, false>(module, args, kwargs, std::index_sequence_for<A...>());
    }
    wrong_argument_count(module, args.size(), sizeof...(A));
  }
}

template <class R, class M, class... A>
R call_packed(M& module, Kwargs kwargs, bool with_kwargs, A&&... args) {
  Args packed;
  packed.reserve(sizeof...(A));
  (packed.emplace_back(std::forward<A>(args)), ...);
  Value result = call_with_hooks(
      module, std::move(packed), std::move(kwargs),
      [&](Args& a, Kwargs& k) { return forward_from_values<M, A...>(module, a, k, with_kwargs); });
  if constexpr (!std::is_void_v<R>) return result.template to<std::remove_cvref_t<R>>();
}

template <class R, class M, class... A>
R call_typed(M& module, A&&... args) {
  constexpr size_t n = sizeof...(A);
  constexpr bool with_kwargs = LastIsKwargs<std::tuple<A...>>::value;
  if constexpr (with_kwargs) {
    auto all = std::forward_as_tuple(std::forward<A>(args)...);
    return [&]<size_t... i>(std::index_sequence<i...>) -> R {
      return call_packed<R>(module, Kwargs(std::get<n - 1>(all)), true,
                            std::get<i>(std::move(all))...);
    }(std::make_index_sequence<n - 1>());
  } else {
    return call_packed<R>(module, Kwargs(), false, std::forward<A>(args)...);
  }
}

template <class M, class... A>
auto call_from(const void* return_address, M& module, A&&... args)
    -> std::decay_t<decltype(module.forward(std::forward<A>(args)...))> {
  using R = std::decay_t<decltype(module.forward(std::forward<A>(args)...))>;
  const CallScope scope(module, return_address, is_users_module<M>());
  if (!module.has_call_hooks()) [[likely]]
    return module.forward(std::forward<A>(args)...);
  return call_typed<R>(module, std::forward<A>(args)...);
}

}  // namespace detail

/// Calls the module: forward with hooks.
template <std::derived_from<Module> M, class... A>
[[gnu::noinline]] auto call(M& module, A&&... args)
    -> std::decay_t<decltype(module.forward(std::forward<A>(args)...))> {
  return detail::call_from(__builtin_return_address(0), module, std::forward<A>(args)...);
}
template <std::derived_from<Module> M, class... A>
[[gnu::noinline]] auto call(const std::shared_ptr<M>& module, A&&... args)
    -> decltype(call(*module, std::forward<A>(args)...)) {
  return detail::call_from(__builtin_return_address(0), *module, std::forward<A>(args)...);
}

/// A module that can be copied: `reset()` builds all members, and clone() fills in the values.
/// Plain members are copied, those of submodules as well. But a submodule stays the one that
/// reset() built, plain members included, if somebody outside of it holds one of its tensors, as
/// for tied weights.
template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;
  virtual void reset() = 0;
  std::shared_ptr<Module> clone() const override;
  /// Calls the module with its hooks.
  template <class... A, class D = Derived>
  [[gnu::noinline]] auto operator()(A&&... args)
      -> decltype(call(std::declval<D&>(), std::forward<A>(args)...)) {
    return detail::call_from(__builtin_return_address(0), static_cast<D&>(*this),
                             std::forward<A>(args)...);
  }

 protected:
  void clone_(const Module& other) override;
  bool shared_outside_() const override;
};

// Whoever includes this makes these three for some sixty modules, so as little of them as can be is a template.

template <class Derived>
std::shared_ptr<Module> Cloneable<Derived>::clone() const {
  return finish_clone_(new Derived(static_cast<const Derived&>(*this)), *this,
                       [](Module& copy) { static_cast<Derived&>(copy).reset(); });
}

template <class Derived>
bool Cloneable<Derived>::shared_outside_() const {
  // A copy has as many handles as this module: if that doubles the owners, there are no others.
  const std::vector<size_t> before = owners_();
  const Derived copy(static_cast<const Derived&>(*this));
  return !has_twice_(before) || Module::shared_outside_();
}

template <class Derived>
void Cloneable<Derived>::clone_(const Module& other) {
  if constexpr (std::is_copy_assignable_v<Derived>) {
    // This module was built by the reset() of the one around it, and knows no plain members.
    if (typeid(other) == typeid(Derived) && typeid(*this) == typeid(Derived) &&
        !shared_outside_()) {
      static_cast<Derived&>(*this) = static_cast<const Derived&>(*other.clone());
      return;
    }
  }
  Module::clone_(other);
}

}  // namespace grapnel::nn
