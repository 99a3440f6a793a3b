/// ModuleList and ModuleDict: modules kept by number or by name, which the owner calls as it likes.
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

/// Modules by position.
class ModuleListImpl : public Cloneable<ModuleListImpl> {
 public:
  using Pointer = std::shared_ptr<Module>;

  ModuleListImpl() = default;
  template <class... M>
    requires(sizeof...(M) > 0 && (std::is_convertible_v<M, Pointer> && ...))
  explicit ModuleListImpl(const M&... modules) {
    (push_back(modules), ...);
  }
  void reset() override {}
  std::shared_ptr<Module> clone() const override;
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::ModuleList"; }

  void push_back(Pointer module);
  template <class M>
  void push_back(const ModuleHolder<M>& holder) {
    push_back(Pointer(holder.ptr()));
  }
  void insert(size_t index, Pointer module);
  void extend(const ModuleListImpl& other) {
    for (const Pointer& m : other.modules_) push_back(m);
  }
  const Pointer& ptr(size_t index) const;
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
  void reset() override {}
  std::shared_ptr<Module> clone() const override;
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::ModuleDict"; }

  /// Throws when the key exists.
  void insert(const std::string& key, Pointer module);
  template <class M>
  void insert(const std::string& key, const ModuleHolder<M>& holder) {
    insert(key, Pointer(holder.ptr()));
  }
  /// Replaces modules of the same name.
  void update(const ModuleDictImpl& other);
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

 protected:
  void clone_(const Module& other) override;
};
GRAPNEL_MODULE(ModuleDict);

}  // namespace grapnel::nn
