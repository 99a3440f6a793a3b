/// The table of C++ layers: what Python has to know about each.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "grapnel/nn/call.h"
#include "python/src/bind.h"

namespace grapnel::python {

/// The arguments of a layer's constructor by name, all of them.
class Arguments {
 public:
  explicit Arguments(nb::dict values) : values_(std::move(values)) {}
  int64_t integer(const char* name) const { return get<int64_t>(name, "an integer"); }
  double number(const char* name) const;
  bool flag(const char* name) const { return get<bool>(name, "True or False"); }
  std::string text(const char* name) const { return get<std::string>(name, "a string"); }
  bool none(const char* name) const { return at(name).is_none(); }
  std::optional<int64_t> maybe_integer(const char* name) const;
  std::optional<double> maybe_number(const char* name) const;
  Tensor tensor(const char* name) const;
  std::vector<int64_t> integers(const char* name) const;
  /// The same where None stands for -1: the size that is there.
  std::vector<int64_t> sizes(const char* name) const;
  Reduce reduction() const { return nb::cast<Reduction>(at("reduction")).value; }
  nb::object at(const char* name) const;

 private:
  /// The argument as a T, or a TypeError that says what it has to be.
  template <class T>
  T get(const char* name, const char* wanted) const {
    try {
      return nb::cast<T>(at(name));
    } catch (const std::bad_cast&) {
      refuse(name, wanted);
    }
  }
  [[noreturn]] void refuse(const char* name, const char* wanted) const;

  nb::dict values_;
};

struct Layer {
  const char* name;
  const char* arguments;          ///< of the constructor, as Python writes them
  const char* inputs = "input";   ///< of forward
  const std::type_info* type = nullptr;
  std::unique_ptr<nn::Module> (*make)(const Arguments&) = nullptr;
  std::unique_ptr<nn::Module> (*copy)(const nn::Module&) = nullptr;
  nn::Value (*forward)(nn::Module&, nn::Args&, nn::Kwargs&) = nullptr;
  Tensor (*forward_tensor)(nn::Module&, const Tensor&) = nullptr;  ///< null unless it takes one
  void (*reset_parameters)(nn::Module&) = nullptr;                 ///< null if there is none
  /// What a layer inside of another was made with, for those that there are.
  void (*describe)(const nn::Module&, nb::dict&) = nullptr;
  /// A layer's members, beside those in the lists of Module.
  struct TensorMember {
    const char* name;
    Tensor& (*of)(nn::Module&);
  };
  std::vector<TensorMember> tensors = {};
  struct ModuleMember {
    const char* name;
    /// False if the module is not of the type that the member has.
    bool (*set)(nn::Module&, const std::shared_ptr<nn::Module>&);  ///< null empties it
  };
  std::vector<ModuleMember> modules = {};
};

const std::vector<Layer>& layers();
/// Null for modules that are not in the table.
const Layer* layer_of(const nn::Module& module);
Tensor* tensor_member(const Layer* layer, nn::Module& module, const std::string& name);
const Layer::ModuleMember* module_member(const Layer* layer, const std::string& name);

// The parts of the table.
void add_basic_layers(std::vector<Layer>& out);
void add_activations(std::vector<Layer>& out);
void add_large_layers(std::vector<Layer>& out);
void add_losses(std::vector<Layer>& out);

/// What the table has about a layer by itself.
template <class M>
Layer layer(const char* name, const char* arguments,
            std::unique_ptr<nn::Module> (*make)(const Arguments&)) {
  Layer out{.name = name, .arguments = arguments};
  out.type = &typeid(M);
  out.make = make;
  out.copy = [](const nn::Module& m) -> std::unique_ptr<nn::Module> {
    return std::make_unique<M>(static_cast<const M&>(m));
  };
  out.forward = [](nn::Module& m, nn::Args& a, nn::Kwargs& k) {
    return nn::detail::forward_any_count<M, 0>(static_cast<M&>(m), a, k);
  };
  if constexpr (requires(M& m, const Tensor& t) {
                  { m.forward(t) } -> std::same_as<Tensor>;
                })
    out.forward_tensor = [](nn::Module& m, const Tensor& t) {
      return static_cast<M&>(m).forward(t);
    };
  if constexpr (requires(M& m) { m.reset_parameters(); })
    out.reset_parameters = [](nn::Module& m) { static_cast<M&>(m).reset_parameters(); };
  return out;
}

/// A tensor that a layer has as a member.
template <class M, auto field>
Layer::TensorMember tensor_in(const char* name) {
  return {name, [](nn::Module& m) -> Tensor& { return static_cast<M&>(m).*field; }};
}
/// A submodule that a layer has as a member.
template <class M, auto field>
Layer::ModuleMember module_in(const char* name) {
  return {name, [](nn::Module& m, const std::shared_ptr<nn::Module>& value) {
            auto& holder = static_cast<M&>(m).*field;
            using Contained = typename std::decay_t<decltype(holder)>::ContainedType;
            if (!value) {
              holder = std::decay_t<decltype(holder)>(nullptr);
              return true;
            }
            auto typed = std::dynamic_pointer_cast<Contained>(value);
            if (!typed) return false;
            holder = std::decay_t<decltype(holder)>(std::move(typed));
            return true;
          }};
}

}  // namespace grapnel::python
