#include "grapnel/nn/container.h"

namespace grapnel::nn {

// --- ModuleList ---

void ModuleListImpl::push_back(Pointer module) {
  modules_.push_back(register_module(std::to_string(modules_.size()), std::move(module)));
}

void ModuleListImpl::insert(size_t index, Pointer module) {
  check(index <= modules_.size(), "ModuleList: place ", index, " was asked for, but there are ",
        modules_.size(), " modules.");
  check(module != nullptr, "ModuleList: the module to insert is empty.");
  std::vector<Pointer> later(modules_.begin() + static_cast<ptrdiff_t>(index), modules_.end());
  for (size_t i = index; i < modules_.size(); ++i) children_.erase(std::to_string(i));
  modules_.resize(index);
  push_back(std::move(module));
  for (Pointer& m : later) push_back(std::move(m));
}

const ModuleListImpl::Pointer& ModuleListImpl::ptr(size_t index) const {
  check(index < modules_.size(), "ModuleList: module ", index, " was asked for, but there are ",
        modules_.size(), ".");
  return modules_[index];
}

std::shared_ptr<Module> ModuleListImpl::clone() const {
  auto copy = std::make_shared<ModuleListImpl>(*this);
  copy->clone_(*this);
  return copy;
}

void ModuleListImpl::clone_(const Module& other) {
  const auto& original = dynamic_cast<const ModuleListImpl&>(other);
  Module::operator=(other);
  children_.clear();
  modules_.clear();
  for (const Pointer& m : original.modules_)
    modules_.push_back(children_.insert(std::to_string(modules_.size()), m->clone()));
}

// --- ModuleDict ---

void ModuleDictImpl::put(const std::string& key, const Pointer& module) {
  if (contains(key)) replace_module(key, module);
  else insert(key, module);
}

ModuleDictImpl::Pointer ModuleDictImpl::pop(const std::string& key) {
  Pointer out = ptr(key);
  unregister_module(key);
  return out;
}

const ModuleDictImpl::Pointer& ModuleDictImpl::ptr(const std::string& key) const {
  const Pointer* found = children_.find(key);
  check(found != nullptr, "ModuleDict: there is no module '", key, "'.");
  return *found;
}

ModuleDictImpl::ModuleDictImpl(const std::vector<std::pair<std::string, Pointer>>& modules) {
  for (const auto& [key, module] : modules) insert(key, module);
}

ModuleDictImpl::ModuleDictImpl(const OrderedDict<std::string, Pointer>& modules) {
  for (const auto& item : modules) insert(item.key(), item.value());
}

void ModuleDictImpl::insert(const std::string& key, Pointer module) {
  register_module(key, std::move(module));
}
void ModuleDictImpl::clear() { children_.clear(); }
bool ModuleDictImpl::contains(const std::string& key) const { return children_.contains(key); }
std::vector<std::string> ModuleDictImpl::keys() const { return children_.keys(); }
std::vector<ModuleDictImpl::Pointer> ModuleDictImpl::values() const { return children_.values(); }
std::vector<std::pair<std::string, ModuleDictImpl::Pointer>> ModuleDictImpl::items() const {
  return children_.pairs();
}

std::shared_ptr<Module> ModuleDictImpl::clone() const {
  auto copy = std::make_shared<ModuleDictImpl>(*this);
  copy->clone_(*this);
  return copy;
}

void ModuleDictImpl::clone_(const Module& other) {
  const auto& original = dynamic_cast<const ModuleDictImpl&>(other);
  Module::operator=(other);
  children_.clear();
  for (const auto& item : original.children_) children_.insert(item.key(), item.value()->clone());
}

// --- ParameterList and ParameterDict ---

namespace {
void print_parameters(std::ostream& stream, const char* name,
                      const OrderedDict<std::string, Tensor>& parameters) {
  stream << "grapnel::nn::" << name << '(';
  for (const auto& item : parameters)
    stream << "\n  (" << item.key() << "): Parameter " << item->dtype() << item->shape();
  stream << (parameters.is_empty() ? ")" : "\n)");
}
/// In the place of each tensor, which another module has as well, one of its own.
void make_own(OrderedDict<std::string, Tensor>& parameters) {
  for (auto& item : parameters)
    item.value() = item->detach().clone().set_requires_grad(item->requires_grad());
}
}  // namespace

void ParameterListImpl::append(const Tensor& parameter) {
  register_parameter(std::to_string(size()), parameter, parameter.requires_grad());
}
Tensor& ParameterListImpl::at(size_t index) {
  check(index < size(), "ParameterList: parameter ", index, " was asked for, but there are ",
        size(), ".");
  return parameters_[index].value();
}
std::shared_ptr<Module> ParameterListImpl::clone() const {
  auto copy = std::make_shared<ParameterListImpl>(*this);
  make_own(copy->parameters_);
  return copy;
}
void ParameterListImpl::clone_(const Module& other) {
  Module::operator=(other);
  make_own(parameters_);
}
void ParameterListImpl::pretty_print(std::ostream& stream) const {
  print_parameters(stream, "ParameterList", parameters_);
}

ParameterDictImpl::ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters) {
  for (const auto& item : parameters) insert(item.key(), item.value());
}
Tensor& ParameterDictImpl::insert(const std::string& key, const Tensor& parameter) {
  return register_parameter(key, parameter, parameter.requires_grad());
}
Tensor ParameterDictImpl::pop(const std::string& key) {
  const Tensor out = parameters_[key];
  parameters_.erase(key);
  return out;
}
void ParameterDictImpl::clear() { parameters_.clear(); }
std::shared_ptr<Module> ParameterDictImpl::clone() const {
  auto copy = std::make_shared<ParameterDictImpl>(*this);
  make_own(copy->parameters_);
  return copy;
}
void ParameterDictImpl::clone_(const Module& other) {
  Module::operator=(other);
  make_own(parameters_);
}
void ParameterDictImpl::pretty_print(std::ostream& stream) const {
  print_parameters(stream, "ParameterDict", parameters_);
}

}  // namespace grapnel::nn
