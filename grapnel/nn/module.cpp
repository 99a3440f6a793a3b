#include "grapnel/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <unordered_set>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/spin_lock.h"

namespace grapnel::nn {

namespace {

std::string demangled(const std::type_info& type) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : type.name();
}

void check_name(const std::string& name, const char* what) {
  check(!name.empty(), what, ": the name is empty.");
  check(name.find('.') == std::string::npos, what, ": '", name,
        "' contains a dot; dots separate the names of nested modules.");
}

template <class T>
T through_hooks(const HookList<std::function<T(Module&, const std::string&, const T&)>>& hooks,
                Module& module, const std::string& name, T value, bool (*given)(const T&)) {
  call_hooks(hooks, HookKind::registration, &typeid(module), [&](const auto& hook) {
    if (T replacement = hook(module, name, value); given(replacement))
      value = std::move(replacement);
  });
  return value;
}
/// Whether `wanted` is `root` or anywhere below it.
bool is_in(const Module& wanted, const Module& root, std::unordered_set<const Module*>& seen) {
  if (&root == &wanted) return true;
  for (const auto& child : root.named_children())
    if (seen.insert(child->get()).second && is_in(wanted, **child, seen)) return true;
  return false;
}
bool is_in(const Module& wanted, const Module& root) {
  std::unordered_set<const Module*> seen;
  return is_in(wanted, root, seen);
}

bool is_given(const Tensor& t) { return t.defined(); }
bool is_given(const std::shared_ptr<Module>& m) { return m != nullptr; }

}  // namespace

Module::Module() = default;
Module::~Module() = default;
Module::Module(const Module& other)
    : std::enable_shared_from_this<Module>(),
      parameters_(other.parameters_),
      buffers_(other.buffers_),
      children_(other.children_),
      name_(other.name_),
      training_(other.training_),
      transient_buffers_(other.transient_buffers_),
      hooks_(other.hooks_) {}
Module& Module::operator=(const Module& other) {
  for (const auto& child : other.children_)
    if (is_in(*this, **child)) [[unlikely]]
      fail("operator=: the module assigned to is part of ", child.key(), " in ", other.name(),
           ", and would become a part of itself.\nAssign a clone().");
  parameters_ = other.parameters_;
  buffers_ = other.buffers_;
  children_ = other.children_;
  name_ = other.name_;
  training_ = other.training_;
  transient_buffers_ = other.transient_buffers_;
  hooks_ = other.hooks_;
  return *this;
}

const std::string& Module::name() const {
  const base::SpinGuard guard(locked_);
  if (name_.empty()) name_ = demangled(typeid(*this));
  return name_;
}

std::weak_ptr<const void> Module::lifetime() const {
  const base::SpinGuard guard(locked_);
  if (!lifetime_) lifetime_ = std::make_shared<char>();
  return lifetime_;
}

std::shared_ptr<Module> Module::clone() const {
  fail("clone: ", name(), " does not say how to copy itself.\nDerive it from nn::Cloneable<",
       name(), "> and build its members in reset().");
}

void Module::clone_(const Module& other) {
  training_ = other.training_;
  hooks_ = other.hooks_;
  NoGradGuard no_grad;
  const auto take = [&](NamedTensors& mine, const NamedTensors& theirs, const char* what) {
    if (mine.size() != theirs.size()) [[unlikely]]
      fail("clone: reset() of ", name(), " registers ", mine.size(), " ", what,
           "s, but the original has ", theirs.size(), ".\nRegister all of them in reset().");
    for (const auto& item : theirs) {
      Tensor* tensor = mine.find(item.key());
      if (tensor == nullptr) [[unlikely]]
        fail("clone: reset() of ", name(), " does not register the ", what, " '", item.key(), "'.");
      if (!item->defined()) continue;
      tensor->set_data(item->detach().clone());
      tensor->set_requires_grad(item->requires_grad());
    }
  };
  take(parameters_, other.parameters_, "parameter");
  take(buffers_, other.buffers_, "buffer");
  if (children_.size() != other.children_.size()) [[unlikely]]
    fail("clone: reset() of ", name(), " registers ", children_.size(),
         " submodules, but the original has ", other.children_.size(),
         ".\nRegister all of them in reset().");
  for (const auto& item : other.children_) {
    auto* child = children_.find(item.key());
    if (child == nullptr) [[unlikely]]
      fail("clone: reset() of ", name(), " does not register the submodule '", item.key(), "'.");
    (*child)->clone_(*item.value());
  }
}

bool Module::shared_outside_() const {
  return std::ranges::any_of(children_,
                             [](const auto& child) { return child.value()->shared_outside_(); });
}

std::vector<size_t> Module::owners_() const {
  std::vector<size_t> out;
  for (const NamedTensors* tensors : {&parameters_, &buffers_})
    for (const auto& item : *tensors) out.push_back(item->use_count());
  for (const auto& child : children_) out.push_back(static_cast<size_t>(child.value().use_count()));
  return out;
}

// --- What is inside ---

template <class Fn>
void Module::walk(const std::string& prefix, Fn&& fn) {
  fn(prefix, *this);
  for (auto& item : children_)
    item.value()->walk(prefix.empty() ? item.key() : prefix + "." + item.key(), fn);
}

namespace {
Module::NamedTensors collect(Module& root, bool recurse, const char* what, auto&& tensors_of,
                             auto&& walk) {
  Module::NamedTensors out(what);
  std::unordered_set<const TensorImpl*> seen;
  walk([&](const std::string& path, Module& module) {
    if (!recurse && &module != &root) return;
    for (const auto& item : tensors_of(module))
      if (item->defined() && seen.insert(item->impl_ptr()).second)
        out.insert(path.empty() ? item.key() : path + "." + item.key(), *item);
  });
  return out;
}
}  // namespace

Module::NamedTensors Module::named_parameters(bool recurse) const {
  Module& self = const_cast<Module&>(*this);
  return collect(
      self, recurse, "Parameter", [](Module& m) -> NamedTensors& { return m.parameters_; },
      [&](auto&& fn) { self.walk("", fn); });
}
Module::NamedTensors Module::named_buffers(bool recurse) const {
  Module& self = const_cast<Module&>(*this);
  return collect(
      self, recurse, "Buffer", [](Module& m) -> NamedTensors& { return m.buffers_; },
      [&](auto&& fn) { self.walk("", fn); });
}
std::vector<Tensor> Module::parameters(bool recurse) const {
  return named_parameters(recurse).values();
}
std::vector<Tensor> Module::buffers(bool recurse) const { return named_buffers(recurse).values(); }

Module::NamedModules Module::named_modules(const std::string& name_prefix,
                                           bool include_self) const {
  NamedModules out("Module");
  std::unordered_set<const Module*> seen;
  const_cast<Module*>(this)->walk(name_prefix, [&](const std::string& path, Module& module) {
    if ((&module == this && !include_self) || !seen.insert(&module).second) return;
    auto shared = module.weak_from_this().lock();
    if (shared == nullptr) [[unlikely]]
      fail("modules: ", module.name(),
           " is not owned by a shared_ptr, so it cannot be listed.\n"
           "Make it with std::make_shared, or pass include_self = false.");
    out.insert(path, std::move(shared));
  });
  return out;
}
std::vector<std::shared_ptr<Module>> Module::modules(bool include_self) const {
  return named_modules({}, include_self).values();
}
std::vector<std::shared_ptr<Module>> Module::children() const { return children_.values(); }
Module::NamedModules Module::named_children() const { return children_; }

void Module::apply(const std::function<void(Module&)>& fn, const std::string& name_prefix) {
  walk(name_prefix, [&](const std::string&, Module& module) { fn(module); });
}
void Module::apply(const std::function<void(const std::string&, Module&)>& fn,
                   const std::string& name_prefix) {
  walk(name_prefix, fn);
}
void Module::apply(const std::function<void(const Module&)>& fn) const {
  const_cast<Module*>(this)->walk({}, [&](const std::string&, Module& module) { fn(module); });
}
void Module::apply(const std::function<void(const std::string&, const Module&)>& fn,
                   const std::string& name_prefix) const {
  const_cast<Module*>(this)->walk(name_prefix, fn);
}

// --- What it does ---

void Module::train(bool on) {
  for (auto& child : children_) child.value()->train(on);
  training_ = on;
}

void Module::convert(const std::function<Tensor(const Tensor&)>& fn) {
  NoGradGuard no_grad;
  walk("", [&](const std::string&, Module& module) {
    for (NamedTensors* tensors : {&module.parameters_, &module.buffers_})
      for (auto& item : *tensors) {
        Tensor& t = item.value();
        if (!t.defined()) continue;
        const Tensor grad = t.grad();
        t.set_data(fn(t.detach()));
        if (grad.defined()) t.set_grad(fn(grad.detach()));
      }
  });
}
void Module::to(DType dtype) {
  check(is_floating(dtype), "to: parameters can only be converted to a floating-point type, not ",
        dtype, ".");
  convert([=](const Tensor& t) { return t.is_floating_point() ? t.to(dtype) : t; });
}
void Module::to(Device device) {
  convert([=](const Tensor& t) { return t.to(device); });
}
void Module::to(Device device, DType dtype) {
  to(device);
  to(dtype);
}
void Module::zero_grad(bool set_to_none) {
  for (const Tensor& p : parameters()) p.zero_grad(set_to_none);
}

void Module::pretty_print(std::ostream& stream) const { stream << name(); }

void Module::print_tree(std::ostream& stream, const std::string& indentation) const {
  pretty_print(stream);
  if (children_.is_empty()) return;
  stream << "(\n";
  for (const auto& child : children_) {
    stream << indentation << "  (" << child.key() << "): ";
    child.value()->print_tree(stream, indentation + "  ");
    stream << '\n';
  }
  stream << indentation << ')';
}
std::ostream& operator<<(std::ostream& stream, const Module& module) {
  module.print_tree(stream, "");
  return stream;
}

// --- Building ---

RegistrationHooks& registration_hooks() {
  static RegistrationHooks& hooks = *new RegistrationHooks;
  return hooks;
}

Tensor& Module::register_parameter(std::string name, Tensor tensor, bool requires_grad) {
  check_name(name, "register_parameter");
  if (tensor.defined()) {
    check(tensor.is_leaf(), "register_parameter: '", name,
          "' is the result of an operation; a parameter has to be a leaf.\nPass tensor.detach().");
    check(!requires_grad || tensor.is_floating_point(), "register_parameter: '", name, "' is ",
          tensor.dtype(),
          "; only floating-point tensors can require gradients.\nPass requires_grad = false, or "
          "register a buffer.");
    tensor.set_requires_grad(requires_grad);
  }
  tensor = through_hooks(registration_hooks().parameter, *this, name, std::move(tensor), is_given);
  return parameters_.insert(std::move(name), std::move(tensor));
}

Tensor& Module::register_buffer(std::string name, Tensor tensor, bool persistent) {
  check_name(name, "register_buffer");
  if (!persistent) transient_buffers_.push_back(name);
  tensor = through_hooks(registration_hooks().buffer, *this, name, std::move(tensor), is_given);
  return buffers_.insert(std::move(name), std::move(tensor));
}

std::shared_ptr<Module> Module::add_module(std::string name, std::shared_ptr<Module> module,
                                           bool replace) {
  check_name(name, "register_module");
  check(module != nullptr, "register_module: the module '", name, "' is empty.");
  module = through_hooks(registration_hooks().module, *this, name, std::move(module), is_given);
  if (is_in(*this, *module)) [[unlikely]]
    fail("register_module: '", name, "' is ", module.get() == this ? "" : "a module that contains ",
         "the very ", this->name(),
         " it would become a part of.\nA module cannot be inside itself; keep what both need in a "
         "third module, or refer to it with a std::weak_ptr.");
  module->path_.store(nullptr, std::memory_order_relaxed);
  if (replace) return children_[name] = std::move(module);
  return children_.insert(std::move(name), std::move(module));
}

void Module::unregister_module(const std::string& name) {
  check(children_.contains(name), "unregister_module: no submodule is called '", name, "'.");
  children_.erase(name);
}

// --- Hooks ---

ModuleHooks& global_module_hooks() {
  static ModuleHooks& hooks = *new ModuleHooks;
  return hooks;
}

void Module::remove_hook(uint64_t id) {
  ModuleHooks::for_each_list(hooks_, [&](HookKind, auto& list) { list.remove(id); });
}
void Module::clear_hooks() {
  ModuleHooks::for_each_list(hooks_, [&](HookKind, auto& list) { list.clear(); });
}

std::vector<HookInfo> hooks_of(const Module& module) {
  std::vector<HookInfo> out;
  ModuleHooks::for_each_list(module.hooks(), [&](HookKind kind, const auto& list) {
    if (const auto entries = list.snapshot())
      for (const auto& e : *entries) out.push_back({e->id, kind, 0, e->name, e->site.str()});
  });
  return out;
}

}  // namespace grapnel::nn
