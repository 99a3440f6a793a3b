/// ModuleHolder: a shared module that reads like a value. `Linear` holds a
/// `std::shared_ptr<LinearImpl>`.
#pragma once

#include <memory>
#include <ostream>
#include <type_traits>
#include <utility>

#include "grapnel/nn/call.h"

namespace grapnel::nn {

/// Copies share the module. Arguments of the constructor go to the module's; `Linear fc{nullptr}`
/// is empty.
template <class Contained>
class ModuleHolder {
 public:
  using ContainedType = Contained;

  ModuleHolder() : impl_(make()) {}
  ModuleHolder(std::nullptr_t) {}
  ModuleHolder(std::shared_ptr<Contained> module) : impl_(std::move(module)) {}
  template <class First, class... Rest>
    requires(!std::is_base_of_v<ModuleHolder, std::decay_t<First>> &&
             std::is_constructible_v<Contained, First, Rest...>)
  explicit ModuleHolder(First&& first, Rest&&... rest)
      : impl_(
            std::make_shared<Contained>(std::forward<First>(first), std::forward<Rest>(rest)...)) {}

  explicit operator bool() const noexcept { return impl_ != nullptr; }
  bool is_empty() const noexcept { return impl_ == nullptr; }
  Contained* operator->() const { return get(); }
  Contained& operator*() const { return *get(); }
  const std::shared_ptr<Contained>& ptr() const {
    get();
    return impl_;
  }
  /// The module itself; an error if the holder is empty.
  Contained* get() const {
    check(impl_ != nullptr,
          "the module holder is empty: it was made with nullptr and no module was assigned since.");
    return impl_.get();
  }
  /// For containers: what stands at a position or under a name.
  template <class Index, class C = Contained>
  decltype(auto) operator[](Index&& index) const
    requires requires(C& c) { c[std::forward<Index>(index)]; }
  {
    return static_cast<C&>(*get())[std::forward<Index>(index)];
  }
  operator const std::shared_ptr<Contained>&() const { return ptr(); }

  /// Calls the module with its hooks.
  template <class... A, class C = Contained>
  [[gnu::noinline]] auto operator()(A&&... args) const
      -> decltype(call(std::declval<C&>(), std::forward<A>(args)...)) {
    return detail::call_from(__builtin_return_address(0), static_cast<C&>(*get()),
                             std::forward<A>(args)...);
  }

 private:
  static std::shared_ptr<Contained> make() {
    if constexpr (std::is_default_constructible_v<Contained>) return std::make_shared<Contained>();
    else fail("this module cannot be made without arguments; write {nullptr} for an empty holder.");
  }
  std::shared_ptr<Contained> impl_;
};

template <class M>
std::ostream& operator<<(std::ostream& stream, const ModuleHolder<M>& holder) {
  return stream << *holder;
}
template <class M>
auto hooks_of(const ModuleHolder<M>& holder) {
  return hooks_of(static_cast<const Module&>(*holder));
}

}  // namespace grapnel::nn

/// Defines the holder `Name` of the module `NameImpl`.
#define GRAPNEL_MODULE_IMPL(Name, Impl_)                    \
  class Name : public ::grapnel::nn::ModuleHolder<Impl_> {  \
   public:                                                  \
    using ::grapnel::nn::ModuleHolder<Impl_>::ModuleHolder; \
    using Impl = Impl_;                                     \
  }
#define GRAPNEL_MODULE(Name) GRAPNEL_MODULE_IMPL(Name, Name##Impl)
