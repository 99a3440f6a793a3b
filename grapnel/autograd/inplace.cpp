/// In-place changes and views: what may be changed, and how histories follow.
#include "grapnel/autograd/copy_slices.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/hooked_views.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/op_node.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

CopySlices::CopySlices(const Tensor& base, const Tensor& view, NodePtr fn)
    : base_(geometry_of(base)), view_(geometry_of(view)), fn_(std::move(fn)) {
  add_slot(base);
  add_next_edge(gradient_edge(base));
  for (size_t i = 1; i < fn_->num_outputs(); ++i) add_next_edge(fn_->next_edge(i));
  if (auto* op = dynamic_cast<OpNode*>(fn_.get())) op->set_slices(this);
}

Tensor CopySlices::in_base_layout(const Tensor& grad) const {
  if (grad.impl().strides == base_.strides && grad.storage_offset() == base_.offset) return grad;
  // A fresh tensor laid out like the base, offset included, so that the view's geometry fits it.
  int64_t extent = base_.offset + 1;
  for (int i = 0; i < base_.sizes.size(); ++i)
    extent += (std::max<int64_t>(base_.sizes[i], 1) - 1) * base_.strides[i];
  Tensor whole = zeros({extent}, grad.options());
  Tensor laid_out(TensorImpl::create(whole.impl().storage, grad.dtype(), base_.sizes, base_.strides,
                                     base_.offset));
  laid_out.copy_(grad);
  return laid_out;
}

Grads CopySlices::apply(Grads grads) {
  Grads out(num_outputs());
  if (!grads[0].defined()) return out;
  const Tensor grad = in_base_layout(grads[0]);
  Grads inner = fn_->apply({as_strided_view(grad, view_)});
  if (next_edge(0)) {
    const Tensor inside =
        !inner.empty() && inner[0].defined() ? inner[0] : zeros(view_.sizes, grad.options());
    out[0] = as_strided_scatter(grad, inside, base_, view_);
  }
  for (size_t i = 1; i < out.size() && i < inner.size(); ++i) out[i] = inner[i];
  return out;
}

Tensor CopySlices::as_output_view(const Tensor& saved) const {
  Tensor base(TensorImpl::create(saved.impl().storage, saved.dtype(), base_.sizes, base_.strides,
                                 base_.offset));
  set_history(base, NodePtr(const_cast<CopySlices*>(this)), 0);
  EnableGradGuard grad;
  return as_strided_view(base, view_);
}

namespace {

/// While recording, remembers where `t` stands in the graph in case the recording is given up.
void journal_history(const Tensor& t) {
  AutogradMeta& meta = autograd_meta(t);
  const uint64_t base_node = meta.view ? meta.view->base_node : 0;
  auto restore = [kept = IntrusivePtr<AutogradMeta>(&meta), impl = t.impl_ptr(),
                  node = meta.grad_fn, slot = meta.output_nr,
                  requires_grad = t.impl().requires_grad, base_node] {
    if (!kept->alive.load(std::memory_order_acquire)) return;
    if (kept->retains_grad) {
      if (kept->grad_fn && kept->grad_fn->hooks())
        kept->grad_fn->hooks()->remove_retain(kept.get());
      if (node) node->make_hooks()->add_retain(slot, kept);
    }
    kept->grad_fn = node;
    kept->output_nr = slot;
    if (kept->view) kept->view->base_node = base_node;
    impl->requires_grad = requires_grad;
  };
  // A node keeps what it saved.
  if (meta.grad_fn) record::on_give_up(std::move(restore));
  else record::on_undo(std::move(restore));
}

}  // namespace

void rebase_history(const Tensor& t, NodePtr node) {
  AutogradMeta& meta = autograd_meta(t);
  // In-place ops of eager mode pay for one question, not for what an undo holds.
  if (record::active()) {
    if (meta.view) journal_history(meta.view->base);
    journal_history(t);
  }
  if (!meta.view) return set_history(t, std::move(node), 0);
  const Tensor base = meta.view->base;
  set_history(base, NodePtr::adopt(new CopySlices(base, t, std::move(node))), 0);
  current_grad_fn(t);  // the base has a new node, so the view gets one, too
}

namespace tape {

bool tracks_base(const Tensor& t) {
  const ViewMeta& view = *t.impl().autograd->view;
  const uint64_t number = node_number(view.base);
  return number != 0 && view.base_node != number;
}

void mark_view(Tensor& view, const Tensor& base, bool multi_output) {
  if (InferenceMode::is_enabled()) return;
  // Views of views hang on the same base, so one look tells whether it was changed.
  AutogradMeta* base_meta = find_meta(base);
  const ViewMeta* outer = base_meta ? base_meta->view.get() : nullptr;
  auto meta = std::make_unique<ViewMeta>();
  meta->base = outer ? outer->base : base;
  meta->base_node = node_number(meta->base);
  meta->origin = base.is_inference()       ? ViewOrigin::inference
                 : !GradMode::is_enabled() ? ViewOrigin::no_grad
                 : multi_output            ? ViewOrigin::multi_output
                 : outer                   ? outer->origin
                                           : ViewOrigin::ordinary;
  autograd_meta(view).view = std::move(meta);
  view.impl().differentiable_view = true;
}

void check_inplace(const Tensor& self, bool recording, std::string_view op) {
  const TensorImpl& impl = self.impl();
  check(!impl.inference || InferenceMode::is_enabled(), op,
        "_: a tensor made under InferenceGuard cannot be changed in place outside of it.\nChange a "
        "clone().");
  const ViewMeta* view = impl.differentiable_view ? impl.autograd->view.get() : nullptr;
  const Tensor& base = view ? view->base : self;
  AutogradMeta* base_meta = find_meta(base);

  if (GradMode::is_enabled()) {
    check(!(impl.requires_grad && self.is_leaf()), op,
          "_: a leaf that requires grad cannot be changed in place while recording.\nUse "
          "NoGradGuard for an update, or an out-of-place operation.");
    check(!(view && base.impl().requires_grad && base.is_leaf()), op,
          "_: this is a view of a leaf that requires grad; it cannot be changed in place while "
          "recording.\nUse NoGradGuard for an update.");
  }
  if (!recording && !(GradMode::is_enabled() && tracks(self))) return;

  if (view) {
    switch (view->origin) {
      case ViewOrigin::ordinary: break;
      case ViewOrigin::multi_output:
        fail(op,
             "_: this view is one of several outputs of a split, chunk or unbind; changing it in "
             "place cannot be recorded.\n"
             "Take views one by one (select, narrow), or change clones.");
      case ViewOrigin::no_grad:
        fail(op,
             "_: this view was made while recording was off, so an in-place change cannot be "
             "recorded.\nMake the view outside NoGradGuard.");
      case ViewOrigin::custom_function:
        fail(op,
             "_: this view was made inside a custom function and cannot be changed in place: its "
             "gradient would be lost.\nReturn a clone().");
      case ViewOrigin::inference:
        fail(op,
             "_: this is a view of a tensor made under InferenceGuard; an in-place change cannot "
             "be recorded.");
    }
  }
  if (base_meta)
    if (const auto table = first_hooked_view(*base_meta))
      fail(op, "_: a view of the tensor to change has hooks (", table->infos()[0].place(),
           "). The change would give the view a new node and the hooks would never fire "
           "again.\nRemove them first, or register after the change.");
}

}  // namespace tape
}  // namespace grapnel
