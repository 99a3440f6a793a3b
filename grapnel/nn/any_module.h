/// AnyModule: a module of any type, called with Values. What containers hold.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

/// A module of any type, with any arguments.
class AnyModule {
 public:
  AnyModule() = default;
  /// With the module's own type: a plain Module has no forward.
  template <std::derived_from<Module> M>
    requires(!std::same_as<M, Module>)
  AnyModule(std::shared_ptr<M> module) : module_(std::move(module)), call_(&call_values<M>) {
    check(module_ != nullptr, "AnyModule: the module is empty.");
    if constexpr (requires(M& m, Tensor t) {
                    { m.forward(std::move(t)) } -> std::convertible_to<Tensor>;
                  })
      tensor_call_ = &call_tensor<M>;
  }
  template <class M>
  AnyModule(const ModuleHolder<M>& holder) : AnyModule(holder.ptr()) {}
  /// Any module by value, as in `Sequential(MyImpl(3))`.
  template <class M>
    requires(std::is_base_of_v<Module, std::decay_t<M>>)
  AnyModule(M&& module) : AnyModule(std::make_shared<std::decay_t<M>>(std::forward<M>(module))) {}

  bool is_empty() const { return module_ == nullptr; }
  const std::shared_ptr<Module>& ptr() const { return module_; }
  /// Calls the module with its hooks.
  Value any_forward(Args args, Kwargs kwargs = {}) const {
    return call_(*module_, std::move(args), std::move(kwargs));
  }
  template <class R = Tensor, class... A>
  R forward(A&&... args) const {
    if constexpr (std::is_same_v<R, Tensor> && sizeof...(A) == 1 &&
                  (std::is_same_v<std::decay_t<A>, Tensor> && ...))
      if (tensor_call_) return tensor_call_(*module_, std::forward<A>(args)...);
    Args packed;
    (packed.emplace_back(std::forward<A>(args)), ...);
    return any_forward(std::move(packed)).template to<R>();
  }
  template <class M>
  auto& get() const {
    auto* typed = module_ ? module_->as<M>() : nullptr;
    if (typed == nullptr) [[unlikely]]
      fail("AnyModule: the module is ", module_ ? module_->name() : "empty",
           ", not of the type asked for.");
    return *typed;
  }
  AnyModule clone() const {
    AnyModule copy = *this;
    copy.module_ = module_->clone();
    return copy;
  }

 private:
  template <class M>
  static Value call_values(Module& module, Args args, Kwargs kwargs) {
    M& typed = static_cast<M&>(module);
    const detail::CallScope scope(module, nullptr, detail::is_users_module<M>());
    const auto forward = [&](Args& a, Kwargs& k) -> Value {
      if constexpr (detail::HasOneForward<M>) return detail::forward_any_count<M, 0>(typed, a, k);
      else if constexpr (requires { typed.any_forward(a, k); }) return typed.any_forward(a, k);
      else return detail::forward_from_values<M, Tensor>(typed, a, k, !k.empty());
    };
    if (!module.has_call_hooks()) return forward(args, kwargs);
    return detail::call_with_hooks(module, std::move(args), std::move(kwargs), forward);
  }
  template <class M>
  static Tensor call_tensor(Module& module, Tensor input) {
    return call(static_cast<M&>(module), std::move(input));
  }

  std::shared_ptr<Module> module_;
  Value (*call_)(Module&, Args, Kwargs) = nullptr;
  Tensor (*tensor_call_)(Module&, Tensor) = nullptr;
};

/// A module with its name in a container.
class NamedAnyModule {
 public:
  template <class M>
  NamedAnyModule(std::string name, M&& module)
      : name_(std::move(name)), module_(std::forward<M>(module)) {}
  const std::string& name() const { return name_; }
  const AnyModule& module() const { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

}  // namespace grapnel::nn
