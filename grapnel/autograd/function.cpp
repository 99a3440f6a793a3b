#include "grapnel/autograd/function.h"

#include <algorithm>

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/base/short_name.h"
#include "grapnel/base/source_site.h"
#include "grapnel/base/spin_lock.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

IValue::IValue() = default;
IValue::IValue(bool v) : value_(v) {}
IValue::IValue(int v) : value_(int64_t{v}) {}
IValue::IValue(int64_t v) : value_(v) {}
IValue::IValue(double v) : value_(v) {}
IValue::IValue(std::string v) : value_(std::move(v)) {}
IValue::IValue(const char* v) : value_(std::string(v)) {}
IValue::IValue(Tensor v) : value_(std::move(v)) {}
IValue::IValue(std::vector<int64_t> v) : value_(std::move(v)) {}
IValue::IValue(std::vector<double> v) : value_(std::move(v)) {}
IValue::IValue(const IValue& other) = default;
IValue::IValue(IValue&& other) noexcept = default;
IValue& IValue::operator=(const IValue& other) = default;
IValue& IValue::operator=(IValue&& other) noexcept = default;
IValue::~IValue() = default;

template <class T>
const T& IValue::get(const char* what) const {
  const T* v = std::get_if<T>(&value_);
  check(v != nullptr, "saved_data: the value is not a ", what, ".");
  return *v;
}
bool IValue::isNone() const { return std::holds_alternative<std::monostate>(value_); }
bool IValue::toBool() const { return get<bool>("bool"); }
int64_t IValue::toInt() const { return get<int64_t>("int"); }
double IValue::toDouble() const { return get<double>("double"); }
const std::string& IValue::toStringRef() const { return get<std::string>("string"); }
const Tensor& IValue::toTensor() const { return get<Tensor>("tensor"); }
const std::vector<int64_t>& IValue::toIntVector() const {
  return get<std::vector<int64_t>>("list of ints");
}
const std::vector<double>& IValue::toDoubleVector() const {
  return get<std::vector<double>>("list of doubles");
}

}  // namespace grapnel

namespace grapnel::autograd {

ForwardScope::ForwardScope() : before(GradMode::is_enabled()) { GradMode::set_enabled(false); }
ForwardScope::~ForwardScope() { GradMode::set_enabled(before); }

void AutogradContext::mark_dirty(const variable_list& inputs) {
  for (const Tensor& t : inputs) {
    if (dirty_.insert(t.impl_ptr()).second && t.defined()) t.impl().storage->bump_version();
  }
}
void AutogradContext::mark_non_differentiable(const variable_list& outputs) {
  for (const Tensor& t : outputs) non_differentiable_.insert(t.impl_ptr());
}
variable_list AutogradContext::get_saved_variables() const { return node_->saved(); }
bool AutogradContext::needs_input_grad(size_t i) const {
  return i < node_->num_outputs() && node_->next_edge(i);
}

std::string FunctionNode::name() const { return type_ ? base::short_type_name(*type_) : name_; }

bool FunctionNode::connect(const variable_list& inputs, std::vector<bool> is_tensor) {
  is_tensor_ = std::move(is_tensor);
  bool any = false;
  for (const Tensor& t : inputs) {
    const bool tracked = t.defined() && GradMode::is_enabled() && tape::tracks(t);
    any |= tracked;
    add_next_edge(tracked ? gradient_edge(t) : Edge{});
  }
  return any;
}

void FunctionNode::finish(const variable_list& inputs, variable_list& outputs, bool recorded) {
  const auto is_input = [&](const Tensor& t) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& i) { return i.is_same(t); });
  };
  for (const TensorImpl* t : context.dirty_) {
    const bool given = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const Tensor& i) { return i.impl_ptr() == t; });
    if (!given) fail(name(), ": mark_dirty was given a tensor that is not an input of forward.");
  }
  for (Tensor& t : outputs) {
    if (!t.defined()) {
      output_specs_.push_back({{}, DType::Float32});
      if (recorded) add_slot(zeros({}));
      continue;
    }
    output_specs_.push_back({t.shape(), t.dtype(), t.device()});
    if (!recorded) continue;
    const bool differentiable =
        is_floating(t.dtype()) && !context.non_differentiable_.contains(t.impl_ptr());
    if (context.dirty_.contains(t.impl_ptr())) {
      tape::check_inplace(t, differentiable, name());
      const uint32_t slot = add_slot(t);
      GRAPNEL_ASSERT(slot == 0 || !t.is_view(), "a view changed in place must be the first output");
      if (differentiable)
        slot == 0 ? rebase_history(t, NodePtr(this)) : set_history(t, NodePtr(this), slot);
      continue;
    }
    // An input returned unchanged is the caller's; the result is another tensor over the same
    // memory.
    if (is_input(t) || t.is_view()) t = t.detach();
    const uint32_t slot = add_slot(t);
    if (differentiable) set_history(t, NodePtr(this), slot);
  }
  if (!recorded) return;
  for (const Tensor& t : context.to_save_) {
    const bool output = std::any_of(outputs.begin(), outputs.end(),
                                    [&](const Tensor& o) { return o.defined() && o.is_same(t); });
    if (output) saved_.push_back(SavedVariable::output(t));
    else saved_.emplace_back(t, t.defined() ? gradient_edge(t) : Edge{});
  }
  context.to_save_.clear();
}

variable_list FunctionNode::saved() const {
  std::vector<SavedVariable> slots;
  {
    const base::SpinGuard guard(locked_);
    slots = saved_;
  }
  variable_list out;
  for (const SavedVariable& s : slots) out.push_back(s.unpack(*this));
  return out;
}

void FunctionNode::release_saved() {
  std::vector<SavedVariable> dying;  // outside the lock: what it holds may be the user's
  const base::SpinGuard guard(locked_);
  dying = saved_;
  for (SavedVariable& s : saved_) s.release();
}

Grads FunctionNode::tensor_gradients(variable_list result) const {
  Grads grads;
  for (size_t i = 0; i < std::max(result.size(), is_tensor_.size()); ++i) {
    const bool tensor = i < is_tensor_.size() && is_tensor_[i];
    if (i >= result.size() ? tensor : !tensor && result[i].defined()) [[unlikely]]
      fail("the backward of ", name(), " returned ", result.size(), " gradients",
           i >= result.size() ? str(", expected ", is_tensor_.size())
                              : str(", and number ", i + 1, " belongs to no tensor"),
           ".\nIt returns one for each of the ", is_tensor_.size(),
           " arguments of forward, in order; for what is no tensor, Tensor().");
    if (tensor) grads.push_back(std::move(result[i]));
  }
  return grads;
}

Grads FunctionNode::apply(Grads grads) {
  variable_list list;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined() && context.materialize_grads_)
      list.push_back(zeros(output_specs_[i].sizes,
                           TensorOptions(output_specs_[i].dtype).device(output_specs_[i].device)));
    else list.push_back(std::move(grads[i]));
  }
  base::UserCodeScope user;
  variable_list result = backward_(&context, std::move(list));
  return tensor_gradients(std::move(result));
}

[[gnu::noinline]] variable_list apply_function(
    std::string name,
    const std::function<variable_list(AutogradContext*, const variable_list&)>& forward,
    FunctionNode::Backward backward, const variable_list& inputs) {
  const auto node =
      IntrusivePtr<FunctionNode>::adopt(new FunctionNode(std::move(name), std::move(backward)));
  if (!node->site()) node->set_site(__builtin_return_address(0));
  const bool recorded = node->connect(inputs, std::vector<bool>(inputs.size(), true));
  variable_list outputs = [&] {
    const ForwardScope scope;
    return forward(&node->context, inputs);
  }();
  node->finish(inputs, outputs, recorded);
  return outputs;
}

}  // namespace grapnel::autograd
