#include "grapnel/autograd/op_node.h"

#include <bit>
#include <cstring>

#include "grapnel/autograd/copy_slices.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/tape_observer.h"
#include "grapnel/base/spin_lock.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

OpNode::OpNode(const Op& op, const void* attrs) : op_(op) {
  if (op.attrs_size > 0) {
    attrs_ = base::pool_allocate(op.attrs_size);
    std::memcpy(attrs_, attrs, op.attrs_size);
  }
}

OpNode::~OpNode() {
  if (attrs_) base::pool_deallocate(attrs_, op_.attrs_size);
}

void OpNode::save(Inputs inputs, std::span<Tensor> outputs) {
  if (!op_.saves) return;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (next_edge(i)) saved_bits_ |= op_.saves[i];
  for (SaveMask rest = saved_bits_; rest; rest &= rest - 1) {
    const int bit = std::countr_zero(rest);
    const auto i = static_cast<size_t>(bit);
    if (bit >= kFirstOutputBit)
      saved_.push_back(SavedVariable::output(outputs[i - kFirstOutputBit]));
    else saved_.emplace_back(*inputs[i], next_edge(i));
  }
}

Tensor OpNode::load(int bit) const {
  const SaveMask mask = SaveMask{1} << bit;
  GRAPNEL_ASSERT(saved_bits_ & mask, "the gradient of ", op_.name,
                 " reads a value it does not save (bit ", bit, ")");
  const auto index = static_cast<size_t>(std::popcount(saved_bits_ & (mask - 1)));
  SavedVariable value;
  {
    // Another thread may be releasing the saved values; a copy of the handle is safe from it.
    const base::SpinGuard guard(locked_);
    value = saved_[index];
  }
  // What is computed without recording needs no history.
  if (!GradMode::is_enabled()) return value.unpack_values(*this);
  Tensor t = value.unpack(*this);
  return slices_ && bit >= kFirstOutputBit && t.requires_grad() ? slices_->as_output_view(t) : t;
}

Grads OpNode::apply_to(const Grads& grads) {
  bool any = false;
  for (const Tensor& g : grads) any |= g.defined();
  if (!any) return Grads(next_edges().size());
  return op_.grad(*this, grads);
}

void OpNode::release_saved() {
  if (saved_.empty()) return;
  SmallVector<SavedVariable, 2> dying;
  {
    const base::SpinGuard guard(locked_);
    dying = saved_;
    for (SavedVariable& s : saved_) s.release();
  }
}

namespace tape {

namespace {
IntrusivePtr<OpNode> make_node(const Op& op, Inputs inputs, const void* attrs) {
  auto node = IntrusivePtr<OpNode>::adopt(new OpNode(op, attrs));
  for (const Tensor* t : inputs)
    node->add_next_edge(t->defined() && tracks(*t) ? gradient_edge(*t) : Edge{});
  return node;
}
void refuse_inference(Inputs inputs, const Op& op) {
  for (const Tensor* t : inputs)
    check(!t->defined() || !t->is_inference(), op.name,
          ": a tensor made under InferenceGuard cannot be recorded for backward.\n"
          "Make a normal tensor of it first: clone() outside the guard.");
}
}  // namespace

void record(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> outputs) {
  refuse_inference(inputs, op);
  const auto node = make_node(op, inputs, attrs);
  for (Tensor& t : outputs) {
    const uint32_t slot = node->add_slot(t);
    if (is_floating(t.dtype())) set_history(t, node, slot);
  }
  node->save(inputs, outputs);
  TapeObserver::notify(*node, outputs);
}

void record_inplace(const Op& op, Inputs inputs, const void* attrs, const Tensor& self,
                    Inputs kept) {
  refuse_inference(inputs, op);
  const auto node = make_node(op, inputs, attrs);
  node->add_slot(self);
  rebase_history(self, node);
  Tensor output = self;
  node->save(kept, {&output, 1});
  TapeObserver::notify(*node, {&output, 1});
}

}  // namespace tape
}  // namespace grapnel
