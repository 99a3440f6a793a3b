/// ModuleList and ModuleDict: modules kept by number or by name, which the owner calls as it likes.
/// ParameterList and ParameterDict are the same for parameters.
///
///   nn::ModuleList layers;
///   for (int i = 0; i < 4; ++i) layers->push_back(nn::Linear(8, 8));
///   for (const auto& layer : *layers) x = nn::call(*layer->as<nn::Linear>(), x);
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

namespace detail {
/// A module as containers keep it: what a holder or a pointer shares, or a copy of a module.
template <std::derived_from<Module> M>
std::shared_ptr<Module> module_pointer(std::shared_ptr<M> module) {
  return module;
}
template <class M>
std::shared_ptr<Module> module_pointer(const ModuleHolder<M>& holder) {
  return holder.ptr();
}
template <class M>
  requires std::derived_from<std::decay_t<M>, Module>
std::shared_ptr<Module> module_pointer(M&& module) {
  return std::make_shared<std::decay_t<M>>(std::forward<M>(module));
}
template <class M>
concept HoldsModule = requires(M&& module) { module_pointer(std::forward<M>(module)); };
}  // namespace detail

/// Modules by position.
class ModuleListImpl : public Cloneable<ModuleListImpl> {
 public:
  using Pointer = std::shared_ptr<Module>;

  ModuleListImpl() = default;
  /// `ModuleList(Linear(3, 4), ReLU())`: holders, pointers, and modules by value.
  template <detail::HoldsModule... M>
    requires(sizeof...(M) > 0 && !(std::is_base_of_v<ModuleListImpl, std::decay_t<M>> && ...))
  explicit ModuleListImpl(M&&... modules) {
    (push_back(detail::module_pointer(std::forward<M>(modules))), ...);
  }
  void reset() override {}
  std::shared_ptr<Module> clone() const override;
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::ModuleList"; }

  void push_back(Pointer module);
  template <detail::HoldsModule M>
  void push_back(M&& module) {
    push_back(detail::module_pointer(std::forward<M>(module)));
  }
  void insert(size_t index, Pointer module);
  template <detail::HoldsModule M>
  void insert(size_t index, M&& module) {
    insert(index, detail::module_pointer(std::forward<M>(module)));
  }
  /// Every module of another list, or of any other collection of holders or pointers.
  template <class Modules>
  void extend(const Modules& modules) {
    for (const auto& m : modules) push_back(m);
  }
  const Pointer& ptr(size_t index) const;
  template <class M>
  std::shared_ptr<M> ptr(size_t index) const {
    at<M>(index);
    return std::static_pointer_cast<M>(ptr(index));
  }
  const Pointer& operator[](size_t index) const { return ptr(index); }
  /// As the type it has; throws when it has another.
  template <class M>
  auto& at(size_t index) const {
    auto* typed = ptr(index)->as<M>();
    if (typed == nullptr) [[unlikely]]
      fail("ModuleList: module ", index, " is ", ptr(index)->name(),
           ", not of the type asked for.");
    return *typed;
  }
  size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 protected:
  void clone_(const Module& other) override;

 private:
  std::vector<Pointer> modules_;
};
GRAPNEL_MODULE(ModuleList);

/// Modules by name.
class ModuleDictImpl : public Cloneable<ModuleDictImpl> {
 public:
  using Pointer = std::shared_ptr<Module>;

  ModuleDictImpl() = default;
  explicit ModuleDictImpl(const std::vector<std::pair<std::string, Pointer>>& modules);
  explicit ModuleDictImpl(const OrderedDict<std::string, Pointer>& modules);
  void reset() override {}
  std::shared_ptr<Module> clone() const override;
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::ModuleDict"; }

  /// Throws when the key exists.
  void insert(const std::string& key, Pointer module);
  template <class M>
  void insert(const std::string& key, const ModuleHolder<M>& holder) {
    insert(key, Pointer(holder.ptr()));
  }
  /// Replaces modules of the same name. The other one is a ModuleDict, or any collection of
  /// pairs or items.
  template <class Modules>
  void update(const Modules& modules) {
    for (const auto& item : modules) {
      if constexpr (requires { item.key(); }) put(item.key(), item.value());
      else put(item.first, item.second);
    }
  }
  Pointer pop(const std::string& key);
  void clear();
  const Pointer& ptr(const std::string& key) const;
  const Pointer& operator[](const std::string& key) const { return ptr(key); }
  template <class M>
  auto& at(const std::string& key) const {
    auto* typed = ptr(key)->as<M>();
    if (typed == nullptr) [[unlikely]]
      fail("ModuleDict: '", key, "' is ", ptr(key)->name(), ", not of the type asked for.");
    return *typed;
  }
  bool contains(const std::string& key) const;
  std::vector<std::string> keys() const;
  std::vector<Pointer> values() const;
  std::vector<std::pair<std::string, Pointer>> items() const;
  size_t size() const noexcept { return children_.size(); }
  bool empty() const noexcept { return children_.is_empty(); }
  /// Items with key() and value().
  auto begin() const { return children_.begin(); }
  auto end() const { return children_.end(); }

 protected:
  void clone_(const Module& other) override;

 private:
  /// Inserts, or replaces what has the key.
  void put(const std::string& key, const Pointer& module);
};
GRAPNEL_MODULE(ModuleDict);

/// Parameters by position.
class ParameterListImpl : public Cloneable<ParameterListImpl> {
 public:
  ParameterListImpl() = default;
  template <std::same_as<Tensor>... T>
    requires(sizeof...(T) > 0)
  explicit ParameterListImpl(const T&... parameters) {
    (append(parameters), ...);
  }
  void reset() override {}
  std::shared_ptr<Module> clone() const override;
  void pretty_print(std::ostream& stream) const override;

  /// The tensor becomes a parameter; it keeps whether it requires a gradient.
  void append(const Tensor& parameter);
  /// Every tensor of another list, or the values of a dictionary.
  template <class Parameters>
  void extend(const Parameters& parameters) {
    for (const auto& p : parameters) {
      if constexpr (requires { p.value(); }) append(p.value());
      else append(p);
    }
  }
  Tensor& at(size_t index);
  Tensor& operator[](size_t index) { return at(index); }
  size_t size() const noexcept { return parameters_.size(); }
  bool is_empty() const noexcept { return parameters_.is_empty(); }
  /// Items with key(), which is the position, and value().
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }

 protected:
  void clone_(const Module& other) override;
};
GRAPNEL_MODULE(ParameterList);

/// Parameters by name.
class ParameterDictImpl : public Cloneable<ParameterDictImpl> {
 public:
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters);
  void reset() override {}
  std::shared_ptr<Module> clone() const override;
  void pretty_print(std::ostream& stream) const override;

  /// The tensor becomes a parameter; it keeps whether it requires a gradient. Throws when the key
  /// exists.
  Tensor& insert(const std::string& key, const Tensor& parameter);
  /// Takes it out, and returns it.
  Tensor pop(const std::string& key);
  /// Replaces parameters of the same name.
  template <class Parameters>
  void update(const Parameters& parameters) {
    for (const auto& item : parameters) {
      if (contains(item.key())) parameters_[item.key()] = item.value();
      else insert(item.key(), item.value());
    }
  }
  void clear();
  const Tensor& get(const std::string& key) const { return parameters_[key]; }
  Tensor& get(const std::string& key) { return parameters_[key]; }
  const Tensor& operator[](const std::string& key) const { return get(key); }
  Tensor& operator[](const std::string& key) { return get(key); }
  bool contains(const std::string& key) const { return parameters_.contains(key); }
  std::vector<std::string> keys() const { return parameters_.keys(); }
  std::vector<Tensor> values() const { return parameters_.values(); }
  size_t size() const noexcept { return parameters_.size(); }
  bool empty() const noexcept { return parameters_.is_empty(); }
  /// Items with key() and value().
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }

 protected:
  void clone_(const Module& other) override;
};
GRAPNEL_MODULE(ParameterDict);

}  // namespace grapnel::nn
