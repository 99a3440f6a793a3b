#include "grapnel/autograd/saved_variable.h"

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/visit.h"
#include "grapnel/base/context.h"
#include "grapnel/base/place.h"
#include "grapnel/ops/record.h"

namespace grapnel {

/// What a hooked slot keeps instead of the tensor.
struct SavedVariable::Packed {
  SavedTensorHookPair hooks;
  std::any value;
  StoragePtr storage;  ///< of a packed tensor, to notice that it was overwritten
  uint32_t version = 0;
};

const std::any* SavedVariable::packed() const { return packed_ ? &packed_->value : nullptr; }

SavedHookStack& SavedHookStack::current() { return wanted_in_context<&Context::saved_hooks>(); }

namespace {
/// The tensor that a pack hook returned, as such or inside an std::any; null if it returned
/// something else.
const Tensor* packed_tensor(const std::any& value) {
  if (const auto* held = std::any_cast<std::shared_ptr<std::any>>(&value))
    return packed_tensor(**held);
  if (const auto* held = std::any_cast<std::shared_ptr<Tensor>>(&value)) return held->get();
  return std::any_cast<Tensor>(&value);
}

/// A tensor that was packed as it is, or a view of it, would own its node, and the node owns what
/// was packed. So it loses its place in the graph, unless it is a leaf, which owns no node.
void cut_off(std::any& value) {
  Tensor* t = nullptr;
  if (const auto* held = std::any_cast<std::shared_ptr<std::any>>(&value))
    t = std::any_cast<Tensor>(held->get());
  else if (const auto* kept = std::any_cast<std::shared_ptr<Tensor>>(&value)) t = kept->get();
  else t = std::any_cast<Tensor>(&value);
  const AutogradMeta* meta = t ? find_meta(*t) : nullptr;
  if (meta && (meta->view || meta->grad_fn)) *t = t->detach();
}
}  // namespace

SavedVariable SavedVariable::output(const Tensor& t) {
  SavedVariable saved;
  if (!t.defined()) return saved;
  saved.is_output_ = true;
  saved.output_nr_ = static_cast<uint32_t>(t.output_nr());
  saved.requires_grad_ = t.requires_grad();
  saved.keep(t);
  return saved;
}

SavedVariable::SavedVariable(const Tensor& t, Edge history) : history_(std::move(history)) {
  if (!t.defined()) return;
  requires_grad_ = static_cast<bool>(history_);
  // Not so for stand-ins: they borrow the accumulate node of another tensor.
  is_leaf_ = requires_grad_ && history_.node->is_accumulate() && leaf_node().leaf().is_same(t);
  if (is_leaf_) output_nr_ = leaf_node().data_number();
  keep(t);
}

void SavedVariable::keep(const Tensor& t) {
  version_ = t._version();
  // Plain numbers are nobody's to change.
  const bool number = t.impl().wrapped_number;
  const SavedHookStack* const ambient = this_context.saved_hooks;
  if (ambient && !ambient->pairs.empty() && !number) [[unlikely]]
    return pack(t, ambient->pairs.back());
  if (!is_leaf_) data_ = number ? t : t.detach();
  state_ = State::plain;
}

const AccumulateGrad& SavedVariable::leaf_node() const {
  return static_cast<const AccumulateGrad&>(*history_.node);
}
const Tensor& SavedVariable::data() const { return is_leaf_ ? leaf_node().leaf() : data_; }

void SavedVariable::pack(const Tensor& argument, SavedTensorHookPair hooks) {
  auto packed = std::make_shared<Packed>();
  packed->hooks = std::move(hooks);
  const uint32_t before = argument._version();
  {
    NoGradGuard no_grad;
    const base::HookCodeScope user;
    try {
      packed->value = packed->hooks.pack(argument);
      packed->hooks.pack = nullptr;  // and what it captured, which may keep the node
    } catch (...) {
      base::note(str("in the pack hook of a saved tensor of shape ", argument.shape()));
      throw;
    }
  }
  check(argument._version() == before,
        "a pack hook changed its argument in place. The tensor is still in use by the forward "
        "pass; return a new one.");
  cut_off(packed->value);
  if (const Tensor* tensor = packed_tensor(packed->value); tensor && tensor->defined()) {
    packed->storage = tensor->impl().storage;
    packed->version = packed->storage->version();
  }
  packed_ = std::move(packed);
  data_ = Tensor();
  is_leaf_ = false;
  state_ = State::packed;
}

void SavedVariable::set_hooks(SavedTensorHookPair hooks) {
  check(state_ != State::freed,
        "saved-tensor hooks: the saved values of this node have already been freed by a backward "
        "pass.");
  check(state_ != State::packed,
        "saved-tensor hooks: this slot already has a pair of hooks; a slot takes one.");
  check(state_ == State::plain,
        "saved-tensor hooks: this slot saved no tensor, so there is nothing to pack.");
  pack(data().detach(), std::move(hooks));
}

void SavedVariable::release() {
  // Deleted after the state is consistent: destructors of packed values are the user's.
  Tensor data = std::exchange(data_, Tensor());
  Edge history = std::exchange(history_, Edge{});
  auto packed = std::exchange(packed_, nullptr);
  state_ = State::freed;
}

void SavedVariable::fail_version(const Node& owner) const {
  fail("a tensor needed for the gradient of ", owner.name(),
       " was changed by an in-place operation: ", data().dtype(), data().shape(),
       is_output_ ? ", the output of that op," : "", " is at version ", data()._version(),
       " but was saved at version ", version_, ".\nThe op was called at ", owner.where(),
       ".\nUse an out-of-place operation, or change a clone().");
}

void SavedVariable::fail_new_data(const Node& owner) const {
  fail("a leaf needed for the gradient of ", owner.name(),
       " was given other data with set_data() since: it is ", data().dtype(), data().shape(),
       " now.\nThe op was called at ", owner.where(),
       ".\nRun backward before set_data(), or forward again after it.");
}

void SavedVariable::fail_freed(const Node& owner) const {
  fail("the saved values of ", owner.name(),
       " have already been freed by an earlier backward pass through this graph (the op was called "
       "at ",
       owner.where(),
       ").\nPass retain_graph = true to the earlier backward() or grad() if the graph is needed "
       "again.");
}

Tensor SavedVariable::unpack_values(const Node& owner) const {
  return state_ == State::empty ? Tensor() : read(owner);
}

Tensor SavedVariable::unpack(const Node& owner) const {
  if (state_ == State::empty) return Tensor();
  Tensor t = read(owner);
  if (!requires_grad_ || is_leaf_) return t;
  t = t.detach();
  attach(t, owner);
  return t;
}

Tensor SavedVariable::read(const Node& owner) const {
  if (state_ == State::freed) fail_freed(owner);
  if (state_ == State::plain) {
    if (is_leaf_ && leaf_node().data_number() != output_nr_) [[unlikely]]
      fail_new_data(owner);
    if (data()._version() != version_) fail_version(owner);
    return data();
  }
  if (!(!packed_->storage || packed_->storage->version() == packed_->version)) [[unlikely]]
    fail("a tensor that a pack hook returned for a value saved by ", owner.name(),
         " was changed by an in-place operation since.\nChange a clone() instead, or let the "
         "pack hook return one.");
  Tensor t;
  record::before_user_code();
  const Grads* const shown = visit::grads_of_formula();
  const uint32_t writes = shown ? visit::writes_to(*shown) : 0;
  {
    const base::HookCodeScope user;
    try {
      t = packed_->hooks.unpack(packed_->value);
    } catch (...) {
      base::note(str("in the unpack hook of a value saved by ", owner.name()));
      throw;
    }
  }
  if (shown && visit::writes_to(*shown) != writes) [[unlikely]]
    fail("an unpack hook changed a gradient in place that ", owner.name(),
         " was given. Gradient buffers may be shared; keep a clone() instead.");
  if (!t.defined()) [[unlikely]]
    fail("an unpack hook returned an undefined tensor for a value saved by ", owner.name(), ".");
  return t.detach();
}

void SavedVariable::attach(const Tensor& t, const Node& owner) const {
  AutogradMeta& meta = autograd_meta(t);
  t.impl().requires_grad = true;
  if (is_output_) {
    meta.grad_fn = NodePtr(const_cast<Node*>(&owner));
    meta.output_nr = output_nr_;
  } else if (history_.node->is_accumulate()) {
    meta.borrowed_accumulator = history_.node;
  } else {
    meta.grad_fn = history_.node;
    meta.output_nr = history_.slot;
  }
}

namespace autograd {

void SavedTensorHooks::push(SavedTensorHookPair pair) {
  SavedHookStack& stack = SavedHookStack::current();
  check(!stack.disabled, stack.message);
  stack.pairs.push_back(std::move(pair));
}
SavedTensorHooks::~SavedTensorHooks() {
  SavedHookStack& stack = SavedHookStack::current();
  if (!stack.pairs.empty()) stack.pairs.pop_back();
}

DisableSavedTensorHooks::DisableSavedTensorHooks(std::string message) {
  SavedHookStack& stack = SavedHookStack::current();
  check(stack.pairs.empty(), message);
  was_disabled_ = stack.disabled;
  previous_ = std::exchange(stack.message, std::move(message));
  stack.disabled = true;
}
DisableSavedTensorHooks::~DisableSavedTensorHooks() {
  SavedHookStack& stack = SavedHookStack::current();
  stack.disabled = was_disabled_;
  stack.message = std::move(previous_);
}

}  // namespace autograd
}  // namespace grapnel
