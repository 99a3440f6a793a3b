/// Module: a piece of a network with parameters, buffers, submodules and hooks. LibTorch's names.
///
///   struct NetImpl : nn::Module {
///     nn::Linear fc{nullptr};
///     NetImpl() { fc = register_module("fc", nn::Linear(4, 3)); }
///     Tensor forward(Tensor x) { return relu(fc(x)); }
///   };
///   GRAPNEL_MODULE(Net);
///   Net net;
///   net(x);            // forward with hooks; net->forward(x) is forward alone
///
/// A module without a holder is called as nn::call(module, x). Start reading at
/// Module::register_module, and at call.h for calls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "grapnel/base/ordered_dict.h"
#include "grapnel/nn/module_hooks.h"
#include "grapnel/nn/state_dict.h"

namespace grapnel::nn {

template <class Contained>
class ModuleHolder;
namespace detail {
class ModulePath;
}

/// Base of layers and networks: parameters, buffers, submodules, hooks, and the state that is
/// saved.
class Module : public std::enable_shared_from_this<Module> {
 public:
  using NamedTensors = OrderedDict<std::string, Tensor>;
  using NamedModules = OrderedDict<std::string, std::shared_ptr<Module>>;

  explicit Module(std::string name) : name_(std::move(name)) {}
  Module();
  /// Shares the tensors and submodules; copies the hooks. See clone() for a deep copy.
  Module(const Module& other);
  Module& operator=(const Module& other);
  virtual ~Module();

  /// The name given, or the type's.
  const std::string& name() const;
  /// Fresh tensors with equal values, and copies of the module's hooks; hooks of tensors are not
  /// copied. Only for modules that derive from Cloneable.
  virtual std::shared_ptr<Module> clone() const;

  // --- What is inside ---
  /// Own ones first, then those of the submodules, in order of registration. A tensor that several
  /// modules share is listed once.
  std::vector<Tensor> parameters(bool recurse = true) const;
  NamedTensors named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  NamedTensors named_buffers(bool recurse = true) const;
  /// This module and all below it. To list itself, the module has to be owned by a shared_ptr.
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const;
  NamedModules named_modules(const std::string& name_prefix = {}, bool include_self = true) const;
  std::vector<std::shared_ptr<Module>> children() const;
  NamedModules named_children() const;
  /// Calls `fn(module)` or `fn(path, module)` on this module and all below it.
  void apply(const std::function<void(Module&)>& fn, const std::string& name_prefix = {});
  void apply(const std::function<void(const std::string&, Module&)>& fn,
             const std::string& name_prefix = {});
  void apply(const std::function<void(const Module&)>& fn) const;
  void apply(const std::function<void(const std::string&, const Module&)>& fn,
             const std::string& name_prefix = {}) const;

  // --- What it does ---
  virtual void train(bool on = true);
  void eval() { train(false); }
  virtual bool is_training() const noexcept { return training_; }
  /// Converts floating-point parameters and buffers, with their gradients. Identity and hooks of
  /// the tensors stay.
  virtual void to(DType dtype);
  virtual void to(Device device);
  virtual void to(Device device, DType dtype);
  // With LibTorch's flag; nothing is asynchronous here.
  void to(DType dtype, bool /*non_blocking*/) { to(dtype); }
  void to(Device device, bool /*non_blocking*/) { to(device); }
  void to(Device device, DType dtype, bool /*non_blocking*/) { to(device, dtype); }
  virtual void zero_grad(bool set_to_none = true);
  /// One line, without the submodules.
  virtual void pretty_print(std::ostream& stream) const;

  // --- Saving and loading ---
  /// Parameters and persistent buffers by path. The tensors share memory with the module and have
  /// no history, unless `keep_vars`.
  StateDict state_dict(const std::string& prefix = {}, bool keep_vars = false);
  /// Copies values in. Wrong shapes are an error, and so are missing and unexpected names when
  /// `strict`; then no value is changed.
  IncompatibleKeys load_state_dict(const StateDict& state_dict, bool strict = true);

  // --- Building ---
  Tensor& register_parameter(std::string name, Tensor tensor, bool requires_grad = true);
  Tensor& register_buffer(std::string name, Tensor tensor, bool persistent = true);
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    return typed<M>(add_module(std::move(name), std::move(module), false));
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, ModuleHolder<M> holder) {
    return register_module(std::move(name), holder.ptr());
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, std::shared_ptr<M> module) {
    return typed<M>(add_module(name, std::move(module), true));
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, ModuleHolder<M> holder) {
    return replace_module(name, holder.ptr());
  }
  void unregister_module(const std::string& name);
  /// This module as the type it has; null when it has another.
  template <class M>
  auto* as() noexcept {
    if constexpr (requires { typename M::ContainedType; })
      return dynamic_cast<typename M::ContainedType*>(this);
    else return dynamic_cast<M*>(this);
  }
  template <class M>
  const auto* as() const noexcept {
    return const_cast<Module*>(this)->as<M>();
  }

  // --- Hooks ---
  /// Called before forward; see the table in module_hooks.h for what hooks are given and may
  /// return.
  template <class F>
  HookHandle register_forward_pre_hook(F&& hook, HookOptions o = {}) {
    return hooks_.forward_pre.add(
        HookKind::forward_pre, detail::make_forward_pre_hook(std::forward<F>(hook)), std::move(o));
  }
  template <class F>
  HookHandle register_forward_hook(F&& hook, HookOptions o = {}) {
    auto callable = detail::make_forward_hook(std::forward<F>(hook), o.always_call);
    return hooks_.forward.add(HookKind::forward, std::move(callable), std::move(o));
  }
  /// Called when the gradients of a call's results are complete.
  template <class F>
  HookHandle register_full_backward_pre_hook(F&& hook, HookOptions o = {}) {
    return hooks_.backward_pre.add(HookKind::full_backward_pre,
                                   detail::make_backward_pre_hook(std::forward<F>(hook)),
                                   std::move(o));
  }
  /// Called when the gradients of a call's arguments are complete: see Note [Module backward hooks]
  /// in backward_call.h.
  template <class F>
  HookHandle register_full_backward_hook(F&& hook, HookOptions o = {}) {
    auto callable = detail::make_backward_hook(std::forward<F>(hook), o.after_parameters);
    return hooks_.backward.add(HookKind::full_backward, std::move(callable), std::move(o));
  }
  template <class F>
  HookHandle register_state_dict_pre_hook(F&& hook, HookOptions o = {}) {
    return hooks_.state_dict_pre.add(
        HookKind::state_dict_pre,
        {detail::make_silent_hook<Module&, const std::string&, bool>(std::forward<F>(hook))},
        std::move(o));
  }
  template <class F>
  HookHandle register_state_dict_post_hook(F&& hook, HookOptions o = {}) {
    return hooks_.state_dict_post.add(
        HookKind::state_dict_post,
        {detail::make_silent_hook<Module&, StateDict&, const std::string&, Metadata&>(
            std::forward<F>(hook))},
        std::move(o));
  }
  template <class F>
  HookHandle register_load_state_dict_pre_hook(F&& hook, HookOptions o = {}) {
    return hooks_.load_pre.add(
        HookKind::load_state_dict_pre,
        {detail::make_silent_hook<Module&, LoadContext&>(std::forward<F>(hook))}, std::move(o));
  }
  template <class F>
  HookHandle register_load_state_dict_post_hook(F&& hook, HookOptions o = {}) {
    return hooks_.load_post.add(
        HookKind::load_state_dict_post,
        {detail::make_silent_hook<Module&, IncompatibleKeys&>(std::forward<F>(hook))},
        std::move(o));
  }
  /// Drops the hook with this id, whatever its kind.
  void remove_hook(uint64_t id);
  void clear_hooks();
  ModuleHooks& hooks() { return hooks_; }
  const ModuleHooks& hooks() const { return hooks_; }
  /// Whether a call has to go through hooks, own or global.
  bool has_call_hooks() const { return hooks_.on_calls() || global_module_hooks().on_calls(); }

  /// Expires with the module. For modules that no shared_ptr owns.
  std::weak_ptr<const void> lifetime() const;

 protected:
  NamedTensors parameters_{"Parameter"};
  NamedTensors buffers_{"Buffer"};
  NamedModules children_{"Submodule"};

  /// For clone(): takes over values and hooks of `other`, which has the same members.
  virtual void clone_(const Module& other);
  /// For clone(): whether anybody outside holds one of the tensors or modules in here.
  virtual bool shared_outside_() const;
  /// How many handles there are of each parameter, buffer and submodule of this module.
  std::vector<size_t> owners_() const;
  /// Whether there are twice as many now.
  bool has_twice_(const std::vector<size_t>& before) const;
  /// Takes over a copy of `from` and gives it tensors of its own; `reset` builds them.
  static std::shared_ptr<Module> finish_clone_(Module* copy, const Module& from,
                                               void (*reset)(Module& copy));

 private:
  template <class>
  friend class Cloneable;
  friend std::ostream& operator<<(std::ostream& stream, const Module& module);
  friend class detail::ModulePath;
  struct Loading;

  std::shared_ptr<Module> add_module(std::string name, std::shared_ptr<Module> module,
                                     bool replace);
  template <class M>
  std::shared_ptr<M> typed(std::shared_ptr<Module> module) const {
    auto out = std::dynamic_pointer_cast<M>(std::move(module));
    if (out == nullptr) [[unlikely]]
      fail(
          "register_module: a registration hook replaced the module by one of another type, which ",
          name(), " cannot hold.");
    return out;
  }
  template <class Fn>
  void walk(const std::string& prefix, Fn&& fn);
  void convert(const std::function<Tensor(const Tensor&)>& fn);
  void save_to(StateDict& out, const std::string& prefix, bool keep_vars);
  void load_from(Loading& loading, const std::string& prefix);
  void print_tree(std::ostream& stream, const std::string& indentation) const;

  mutable std::string name_;
  bool training_ = true;
  std::vector<std::string> transient_buffers_;
  ModuleHooks hooks_;
  mutable std::atomic<bool> locked_{false};
  mutable std::shared_ptr<const void> lifetime_;
  /// Of the last call that was asked for it, for messages.
  mutable std::atomic<const detail::ModulePath*> path_{nullptr};
};

/// The module and everything below it, one line each.
std::ostream& operator<<(std::ostream& stream, const Module& module);
/// What is registered on a module, kind by kind in firing order.
std::vector<HookInfo> hooks_of(const Module& module);

// --- Hooks on registration, for every module ---
// They are called as (Module&, const std::string& name, value); a returned value replaces it.

using TensorRegistrationFn = std::function<Tensor(Module&, const std::string& name, const Tensor&)>;
using ModuleRegistrationFn = std::function<std::shared_ptr<Module>(Module&, const std::string& name,
                                                                   const std::shared_ptr<Module>&)>;
/// Hooks that see every parameter, buffer or submodule that is registered.
struct RegistrationHooks {
  HookList<TensorRegistrationFn> parameter, buffer;
  HookList<ModuleRegistrationFn> module;
};
/// The hooks that see what is registered, of all modules.
RegistrationHooks& registration_hooks();

namespace detail {
template <class T, class F>
std::function<T(Module&, const std::string&, const T&)> make_registration_hook(F&& hook) {
  using D = std::decay_t<F>;
  static_assert(std::is_invocable_v<D&, Module&, const std::string&, const T&>,
                "a registration hook is called as hook(nn::Module&, const std::string& name, const "
                "T& value)");
  auto f = std::make_shared<D>(std::forward<F>(hook));
  return [f](Module& m, const std::string& name, const T& value) -> T {
    if constexpr (std::is_void_v<std::invoke_result_t<D&, Module&, const std::string&, const T&>>) {
      std::invoke(*f, m, name, value);
      return T();
    } else if constexpr (std::is_convertible_v<
                             std::invoke_result_t<D&, Module&, const std::string&, const T&>, T>) {
      return std::invoke(*f, m, name, value);
    } else {
      std::optional<T> result = std::invoke(*f, m, name, value);
      return result ? *std::move(result) : T();
    }
  };
}
}  // namespace detail

/// Sees every parameter that is registered, and may replace it.
template <class F>
HookHandle register_module_parameter_registration_hook(F&& hook, HookOptions o = {}) {
  return registration_hooks().parameter.add(
      HookKind::registration, detail::make_registration_hook<Tensor>(std::forward<F>(hook)),
      std::move(o));
}
/// Sees every buffer that is registered, and may replace it.
template <class F>
HookHandle register_module_buffer_registration_hook(F&& hook, HookOptions o = {}) {
  return registration_hooks().buffer.add(
      HookKind::registration, detail::make_registration_hook<Tensor>(std::forward<F>(hook)),
      std::move(o));
}
/// Sees every submodule that is registered, and may replace it.
template <class F>
HookHandle register_module_module_registration_hook(F&& hook, HookOptions o = {}) {
  return registration_hooks().module.add(
      HookKind::registration,
      detail::make_registration_hook<std::shared_ptr<Module>>(std::forward<F>(hook)), std::move(o));
}

}  // namespace grapnel::nn
