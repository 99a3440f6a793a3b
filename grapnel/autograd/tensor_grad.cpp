/// Tensor's methods that concern gradients.
#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/base/error_kinds.h"
#include "grapnel/base/warn.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

bool Tensor::requires_grad() const { return tape::tracks(*this); }

Tensor& Tensor::set_requires_grad(bool on) const {
  TensorImpl& t = impl();
  check_as<TypeError>(
      !on || is_floating(t.dtype),
      "requires_grad: only floating-point tensors can require gradients, this one is ", t.dtype,
      ".");
  if (!(is_leaf() || on == requires_grad())) [[unlikely]]
    fail("requires_grad: only leaves can be switched; this tensor is the result of ",
         grad_fn() ? grad_fn()->name() : "", ".\nUse detach() for a copy without history.");
  check(!on || !t.inference || InferenceMode::is_enabled(),
        "requires_grad: a tensor made under InferenceGuard cannot require grad outside of "
        "it.\nclone() it first.");
  t.requires_grad = on;
  if (!on) return const_cast<Tensor&>(*this);
  AutogradMeta& meta = autograd_meta(*this);
  if (meta.view && is_leaf()) {
    // A leaf begins its own history, whatever becomes of the tensor whose memory it shares. That
    // may even be computed from the leaf, and the two would own each other.
    meta.view.reset();
    t.differentiable_view = false;
  }
  return const_cast<Tensor&>(*this);
}

bool Tensor::is_leaf() const { return !current_grad_fn(*this); }
NodePtr Tensor::grad_fn() const {
  const NodePtr& node = current_grad_fn(*this);
  // The caller may put hooks on the node of a view, which a change of the base would cut off: see
  // tape::check_inplace.
  if (node && find_meta(*this)->view && (!node->hooks() || !node->hooks()->has_user_hooks())) {
    uint32_t slot = 0;
    (void)tensor_hook_table(*this, slot);
  }
  return node;
}
int Tensor::output_nr() const {
  const AutogradMeta* meta = find_meta(*this);
  return meta ? static_cast<int>(meta->output_nr) : 0;
}

namespace {
[[gnu::cold]] void warn_not_kept(const AutogradMeta& meta, const void* caller) {
  const void* const place = base::current_call_site() ? base::current_call_site() : caller;
  if (!base::first_at(place, "grad")) return;
  base::warn(str("grad: this tensor is the result of ", meta.grad_fn->name(),
                 ", whose gradient is not kept; it is undefined (at ", base::describe({place}),
                 ").\nCall retain_grad() on it before the backward pass, or ask a leaf."));
}
}  // namespace

const Tensor& Tensor::grad() const {
  static const Tensor& none = *new Tensor;
  const AutogradMeta* meta = impl().autograd;
  if (!meta) return none;
  if (!meta->grad.defined() && meta->grad_fn && !meta->retains_grad) [[unlikely]]
    warn_not_kept(*meta, __builtin_return_address(0));
  return meta->grad;
}
Tensor& Tensor::mutable_grad() const {
  AutogradMeta& meta = autograd_meta(*this);
  record::before_grad_is_replaced(meta);
  journal_grad(meta);
  return meta.grad;
}
void Tensor::set_grad(Tensor grad) const {
  if (grad.defined()) {
    check(grad.shape() == shape(), "set_grad: the gradient has shape ", grad.shape(),
          " but the tensor has shape ", shape(), ".");
    check(grad.dtype() == dtype(), "set_grad: the gradient is ", grad.dtype(),
          " but the tensor is ", dtype(), ".");
    check(!grad.is_same(*this), "set_grad: a tensor cannot be its own gradient.");
  }
  AutogradMeta& meta = autograd_meta(*this);
  record::before_grad_is_replaced(meta);
  std::lock_guard guard(meta.grad_mutex);
  journal_grad(meta);
  std::swap(meta.grad, grad);
}
void Tensor::reset_grad() const {
  if (AutogradMeta* meta = find_meta(*this)) {
    Tensor dying;
    record::before_grad_is_replaced(*meta);
    std::lock_guard guard(meta->grad_mutex);
    journal_grad(*meta);
    std::swap(meta->grad, dying);
  }
}
void Tensor::zero_grad(bool set_to_none) const {
  if (set_to_none) return reset_grad();
  NoGradGuard no_grad;
  if (grad().defined()) grad().detach().zero_();
}

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      std::optional<TensorList> inputs) const {
  engine::run({.roots = {this, 1},
               .grad_roots = {&gradient, 1},
               .keep_graph = retain_graph.value_or(create_graph),
               .create_graph = create_graph,
               .accumulate = true,
               .inputs = inputs});
}
void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      const std::vector<Tensor>& inputs) const {
  backward(gradient, retain_graph, create_graph, TensorList(inputs));
}

void Tensor::retain_grad() const {
  check(requires_grad(),
        "retain_grad: the tensor does not require grad, so there will be nothing to retain.");
  const NodePtr& node = current_grad_fn(*this);
  if (!node) return;  // a leaf keeps its gradient anyway
  AutogradMeta& meta = *find_meta(*this);
  if (meta.retains_grad) return;
  node->make_hooks()->add_retain(meta.output_nr, IntrusivePtr<AutogradMeta>(&meta));
  meta.retains_grad = true;
}
bool Tensor::retains_grad() const {
  const AutogradMeta* meta = find_meta(*this);
  return meta && meta->retains_grad;
}

Tensor Tensor::detach() const {
  const TensorImpl& t = impl();
  Tensor out(TensorImpl::create(t.storage, t.dtype, t.sizes, t.strides, t.offset));
  out.impl().inference = t.inference;
  return out;
}
Tensor& Tensor::detach_() const {
  check(!is_view(),
        "detach_: views cannot be detached in place; the base would still track them.\nUse "
        "detach().");
  if (AutogradMeta* meta = find_meta(*this)) {
    NodePtr node = std::exchange(meta->grad_fn, NodePtr());
    if (node && node->hooks()) node->hooks()->remove_retain(meta);
    meta->retains_grad = false;
    meta->output_nr = 0;
  }
  impl().requires_grad = false;
  return const_cast<Tensor&>(*this);
}

namespace {
/// While recording, remembers the data of `t` in case what is recorded does not happen.
void journal_data(const Tensor& t) {
  record::on_undo_of(t.detach(), [&] {
    return [kept = IntrusivePtr<AutogradMeta>(&autograd_meta(t)),
            impl = t.impl_ptr()](const Tensor& before) {
      if (!before.defined() || !kept->alive.load(std::memory_order_acquire)) return;
      const TensorImpl& old = before.impl();
      impl->storage = old.storage;
      impl->dtype = old.dtype;
      impl->sizes = old.sizes;
      impl->strides = old.strides;
      impl->offset = old.offset;
      impl->numel = old.numel;
      const std::lock_guard guard(kept->lock);
      kept->accumulator = nullptr;
    };
  });
}
}  // namespace

void Tensor::set_data(const Tensor& other) const {
  TensorImpl& t = impl();
  const TensorImpl& o = other.impl();
  check(is_leaf(),
        "set_data: only leaves can change their data; this tensor is the result of a recorded op.");
  check(!t.requires_grad || is_floating(o.dtype),
        "set_data: a tensor that requires grad needs floating-point data, got ", o.dtype, ".");
  // The undo needs a header of what was there, which eager mode does not pay for.
  if (record::active()) journal_data(*this);
  const bool same_place = t.storage == o.storage && t.offset == o.offset && t.strides == o.strides;
  const bool fits = t.sizes == o.sizes && t.dtype == o.dtype;
  // Graphs that use this leaf keep leading to it as long as their gradients fit it. Its hooks stay
  // in any case.
  if (AutogradMeta* meta = t.autograd; meta && !(same_place && fits)) {
    std::lock_guard guard(meta->lock);
    if (meta->accumulator) meta->accumulator->on_new_data(fits);
    if (!fits) meta->accumulator = nullptr;
  }
  t.storage = o.storage;
  t.dtype = o.dtype;
  t.sizes = o.sizes;
  t.strides = o.strides;
  t.offset = o.offset;
  t.numel = o.numel;
}

bool Tensor::is_view() const { return impl().differentiable_view; }
Tensor Tensor::_base() const {
  const AutogradMeta* meta = find_meta(*this);
  return meta && meta->view ? meta->view->base : *this;
}

const std::string& Tensor::name() const {
  static const std::string& none = *new std::string;
  const AutogradMeta* meta = find_meta(*this);
  return meta && meta->name ? *meta->name : none;
}
void Tensor::set_name(std::string name) const {
  autograd_meta(*this).name = std::make_unique<std::string>(std::move(name));
}

std::string HookContext::tensor_name() const {
  const auto* leaf = dynamic_cast<const AccumulateGrad*>(node);
  return leaf ? leaf->leaf().name() : std::string();
}

HookHandle Tensor::add_tensor_hook(std::shared_ptr<TensorHook> hook, HookOptions options) const {
  check(hook != nullptr, "register_hook: the hook is null.");
  check(requires_grad(),
        "register_hook: the tensor does not require grad, so its hooks would never be "
        "called.\nCall requires_grad_() on a leaf first.");
  uint32_t slot = 0;
  const auto& table = tensor_hook_table(*this, slot);
  return table->add(HookKind::tensor, slot, std::move(hook), std::move(options));
}

HookHandle Tensor::add_post_accumulate_hook(std::shared_ptr<PostAccumulateGradHook> hook,
                                            HookOptions options) const {
  check(hook != nullptr, "register_post_accumulate_grad_hook: the hook is null.");
  check(requires_grad(),
        "register_post_accumulate_grad_hook: the tensor does not require grad.\nCall "
        "requires_grad_() first.");
  if (!is_leaf()) [[unlikely]]
    fail(
        "register_post_accumulate_grad_hook: only leaves accumulate a gradient; this tensor is the "
        "result of ",
        grad_fn() ? grad_fn()->name() : "", ".\nUse register_hook for intermediate tensors.");
  uint32_t slot = 0;
  return tensor_hook_table(*this, slot)
      ->add(HookKind::post_accumulate, 0, std::move(hook), std::move(options));
}

void Tensor::remove_hook(const HookHandle& handle) const {
  if (handle.has_owner()) return const_cast<HookHandle&>(handle).remove();
  AutogradMeta* meta = find_meta(*this);
  HookTable* table = !meta                    ? nullptr
                     : current_grad_fn(*this) ? meta->grad_fn->hooks()
                                              : meta->hooks.get();
  check(table && table->may_have_issued(handle.id()), "remove_hook: ", handle.id(),
        " does not name a hook of this tensor.");
  table->remove_hook(handle.id());
}

}  // namespace grapnel
