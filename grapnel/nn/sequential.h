/// Sequential: modules in a row, and Functional: a function as a module.
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "grapnel/nn/any_module.h"

namespace grapnel::nn {

/// Calls a function of one tensor: `Functional(relu)`, `Functional([](Tensor x) { return x * 2;
/// })`. Further arguments are bound: `Functional(elu, 0.5)`.
class FunctionalImpl : public Cloneable<FunctionalImpl> {
 public:
  using Function = std::function<Tensor(Tensor)>;
  /// For functions with overloads, of which the one on a single tensor is meant.
  explicit FunctionalImpl(Tensor (*function)(const Tensor&)) : function_(function) {}
  /// Anything else that is called with a tensor and gives one.
  template <class F>
    requires(!std::is_base_of_v<FunctionalImpl, std::decay_t<F>> &&
             std::is_constructible_v<Function, F>)
  explicit FunctionalImpl(F&& function) : function_(std::forward<F>(function)) {}
  template <class F, class... A>
    requires(sizeof...(A) > 0)
  explicit FunctionalImpl(F function, A... args)
      : function_([function = std::move(function), ... args = std::move(args)](Tensor x) {
          return function(std::move(x), args...);
        }) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::Functional()"; }
  Tensor forward(Tensor input) {
    const base::HookCodeScope user;
    return function_(std::move(input));
  }

 private:
  Function function_;
};
GRAPNEL_MODULE(Functional);

/// Feeds each module's result to the next. The submodules are called with their hooks.
class SequentialImpl : public Cloneable<SequentialImpl> {
 public:
  SequentialImpl() = default;
  SequentialImpl(std::initializer_list<NamedAnyModule> modules);
  explicit SequentialImpl(const OrderedDict<std::string, AnyModule>& modules);
  template <class... M>
    requires(sizeof...(M) > 0 && (std::is_constructible_v<AnyModule, M> && ...) &&
             !(std::is_base_of_v<SequentialImpl, std::decay_t<M>> && ...))
  explicit SequentialImpl(M&&... modules) {
    (push_back(AnyModule(std::forward<M>(modules))), ...);
  }

  void reset() override {}
  std::shared_ptr<Module> clone() const override;
  void pretty_print(std::ostream& stream) const override { stream << "grapnel::nn::Sequential"; }

  /// The first module may take any arguments.
  template <class R = Tensor, class... A>
  R forward(A&&... args) {
    check(!modules_.empty(), "Sequential: it is empty, so there is nothing to call.");
    if constexpr (std::is_same_v<R, Tensor> && sizeof...(A) == 1 &&
                  (std::is_same_v<std::decay_t<A>, Tensor> && ...)) {
      return forward_tensor(std::forward<A>(args)...);
    } else {
      Args packed;
      (packed.emplace_back(std::forward<A>(args)), ...);
      Kwargs none;
      return any_forward(packed, none).template to<R>();
    }
  }
  /// The same on Values.
  Value any_forward(Args& args, Kwargs& kwargs);

  void push_back(AnyModule module);
  void push_back(std::string name, AnyModule module);
  void extend(const SequentialImpl& other);
  /// Every module of a collection of holders, pointers to their own type, or AnyModules.
  template <class Modules>
    requires(!std::is_base_of_v<SequentialImpl, Modules>)
  void extend(const Modules& modules) {
    for (const auto& m : modules) push_back(AnyModule(m));
  }
  template <class M>
  auto& at(size_t index) const {
    return any_at(index).get<M>();
  }
  std::shared_ptr<Module> ptr(size_t index) const { return any_at(index).ptr(); }
  std::shared_ptr<Module> operator[](size_t index) const { return ptr(index); }
  size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 protected:
  void clone_(const Module& other) override;

 private:
  Tensor forward_tensor(Tensor input);
  const AnyModule& any_at(size_t index) const {
    check(index < modules_.size(), "Sequential: module ", index, " was asked for, but there are ",
          modules_.size(), ".");
    return modules_[index];
  }
  std::vector<AnyModule> modules_;
};

class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  using Impl = SequentialImpl;
  Sequential() = default;
  /// `Sequential({{"fc", Linear(4, 3)}, {"act", ReLU()}})`
  Sequential(std::initializer_list<NamedAnyModule> modules);
};

}  // namespace grapnel::nn
