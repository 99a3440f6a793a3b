#include "grapnel/nn/sequential.h"

namespace grapnel::nn {

SequentialImpl::SequentialImpl(std::initializer_list<NamedAnyModule> modules) {
  for (const NamedAnyModule& m : modules) push_back(m.name(), m.module());
}
SequentialImpl::SequentialImpl(const OrderedDict<std::string, AnyModule>& modules) {
  for (const auto& item : modules) push_back(item.key(), item.value());
}
Sequential::Sequential(std::initializer_list<NamedAnyModule> modules)
    : ModuleHolder(std::make_shared<SequentialImpl>(modules)) {}

void SequentialImpl::extend(const SequentialImpl& other) {
  for (const AnyModule& m : other.modules_) push_back(m);
}
void SequentialImpl::push_back(AnyModule module) {
  push_back(std::to_string(modules_.size()), std::move(module));
}
void SequentialImpl::push_back(std::string name, AnyModule module) {
  check(!module.is_empty(), "Sequential: the module '", name, "' is empty.");
  const auto registered = register_module(std::move(name), module.ptr());
  check(registered == module.ptr(),
        "Sequential: a registration hook replaced a module; a Sequential holds what it was given.");
  modules_.push_back(std::move(module));
}

Tensor SequentialImpl::forward_tensor(Tensor input) {
  for (const AnyModule& m : modules_) input = m.forward(std::move(input));
  return input;
}

Value SequentialImpl::any_forward(Args& args, Kwargs& kwargs) {
  check(!modules_.empty(), "Sequential: it is empty, so there is nothing to call.");
  Value value = modules_[0].any_forward(args, kwargs);
  for (size_t i = 1; i < modules_.size(); ++i) {
    Args next;
    next.push_back(std::move(value));
    value = modules_[i].any_forward(std::move(next));
  }
  return value;
}

std::shared_ptr<Module> SequentialImpl::clone() const {
  auto copy = std::make_shared<SequentialImpl>(*this);
  copy->clone_(*this);
  return copy;
}

void SequentialImpl::clone_(const Module& other) {
  const auto& original = dynamic_cast<const SequentialImpl&>(other);
  Module::operator=(other);
  children_.clear();
  modules_.clear();
  for (size_t i = 0; i < original.modules_.size(); ++i) {
    AnyModule copy = original.modules_[i].clone();
    children_.insert(original.children_[i].key(), copy.ptr());
    modules_.push_back(std::move(copy));
  }
}

}  // namespace grapnel::nn
