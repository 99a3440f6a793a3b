#include "grapnel/autograd/accumulate.h"

#include "grapnel/autograd/anomaly.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/tape_observer.h"
#include "grapnel/autograd/visit.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/compiled_args.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/record.h"

namespace grapnel {

AccumulateGrad::AccumulateGrad(Tensor leaf) : Node(Kind::accumulate), leaf_(std::move(leaf)) {
  add_slot(leaf_);
}

// The leaf refers to its node without owning it. Letting go and looking up happen under one lock,
// so nobody can pick up a node that is about to die.
bool AccumulateGrad::release_owner() const noexcept {
  AutogradMeta* meta = find_meta(leaf_);
  std::lock_guard guard(meta->lock);
  const bool last = Node::release_owner();
  if (last && meta->accumulator == this) meta->accumulator = nullptr;
  return last;
}

Grads AccumulateGrad::apply(Grads grads) {
  // Called by itself, outside of a pass that would know.
  accumulate(grads, false, record::active());
  return {};
}

namespace {

/// Dense and without overlap: every element has a place of its own and there are no gaps.
bool is_dense(const TensorImpl& t) {
  Shape order;
  for (int i = 0; i < t.sizes.size(); ++i)
    if (t.sizes[i] != 1) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return t.strides[static_cast<int>(a)] < t.strides[static_cast<int>(b)];
  });
  int64_t expected = 1;
  for (int64_t i : order) {
    if (t.strides[static_cast<int>(i)] != expected) return false;
    expected *= t.sizes[static_cast<int>(i)];
  }
  return true;
}

bool same_strides(const TensorImpl& t, const Shape& strides) {
  for (int i = 0; i < strides.size(); ++i)
    if (t.sizes[i] != 1 && t.strides[i] != strides[i]) return false;
  return true;
}

}  // namespace

Shape grad_strides(const TensorImpl& leaf) {
  return is_dense(leaf) ? leaf.strides : contiguous_strides(leaf.sizes);
}

void AccumulateGrad::fail_outdated() const {
  const SlotMeta& then = slot(0);
  fail("backward: the graph was made when ", anomaly::describe_leaf(leaf_, then.sizes),
       " and type ", then.dtype, " had other data; since then set_data() gave it data of shape ",
       leaf_.shape(), " and type ", leaf_.dtype(),
       ", so this gradient has no place to go.\nRun backward before set_data(), or forward again "
       "after it.");
}

namespace {
/// Adding must neither stretch nor shorten what is there.
void check_sum(const Tensor& before, const Tensor& grad, const Tensor& leaf) {
  if (before.shape() == grad.shape() &&
      (before.dtype() == grad.dtype() ||
       promote_types(before.dtype(), grad.dtype()) == before.dtype()))
    return;
  fail("backward: grad() of ", anomaly::describe_leaf(leaf, leaf.shape()), " is ", before.dtype(),
       " of shape ", before.shape(), ", so a gradient that is ", grad.dtype(), " of shape ",
       grad.shape(),
       " cannot be added to it.\nIt is older than the leaf's data, or was put there with "
       "mutable_grad(). Clear it first: reset_grad(), or zero_grad() of the optimiser.");
}
}  // namespace

/// The gradient as other passes, which may run at the same time, have left it so far.
Tensor AccumulateGrad::grad_now() const {
  AutogradMeta& meta = *find_meta(leaf_);
  std::lock_guard guard(meta.grad_mutex);
  return meta.grad;
}

// Note [Adopting gradients]
// When grad() is still undefined and the pass builds no graph, the incoming buffer becomes grad()
// without a copy, provided that the engine is its only owner and it is laid out like the leaf.
// Otherwise it is copied. Either way, post-hooks of the accumulate node then see grad()'s own
// buffer as grad_outputs[0]; only a seed that the caller passed in stays itself, and is never
// adopted nor changed.
void AccumulateGrad::write(Tensor& grad, bool seed_is_callers, bool recording) {
  AutogradMeta& meta = *find_meta(leaf_);
  const bool looks = AnomalyMode::should_check_nan();
  if (recording) {
    const Tensor before = grad_now();
    if (looks) [[unlikely]]
      anomaly::check_existing_grad(leaf_, before);
    const bool stays = before.defined() && !before.requires_grad() && !GradMode::is_enabled();
    if (!stays) record::before_grad_is_replaced(meta);  // not under the lock: user code may run
  }
  std::lock_guard guard(meta.grad_mutex);
  if (looks && !recording) [[unlikely]]
    anomaly::check_existing_grad(leaf_, meta.grad);  // under the lock: other passes may add to it
  if (meta.grad.defined()) check_sum(meta.grad, grad, leaf_);
  journal_grad(meta);
  if (GradMode::is_enabled()) {
    meta.grad = meta.grad.defined() ? meta.grad + grad : grad.clone();
    return;
  }
  if (meta.grad.defined()) {
    const Tensor target = meta.grad;
    if (target.requires_grad()) meta.grad = target.detach() + grad;
    else target.add_(grad);
    return;
  }
  const TensorImpl& g = grad.impl();
  if (!(g.sizes == leaf_.impl().sizes && g.dtype == leaf_.impl().dtype)) [[unlikely]]
    fail("backward: a gradient that is ", g.dtype, " of shape ", g.sizes, " arrived at ",
         anomaly::describe_leaf(leaf_), ", which is ", leaf_.dtype(),
         ".\nA hook changed it with set_data(); return a new gradient instead.");
  const Shape strides = grad_strides(leaf_.impl());
  // A seed of the caller has another owner: the caller.
  const bool adopt = is_sole_owner(grad) &&
                     static_cast<size_t>(grad.nbytes()) == g.storage->bytes() &&
                     same_strides(g, strides);
  if (adopt) {
    meta.grad = grad.is_view() ? grad.detach() : std::move(grad);
  } else {
    Tensor copy = empty(g.sizes, grad.options());
    copy.impl().strides = strides;
    copy_elements(copy, grad);
    meta.grad = std::move(copy);
  }
  if (!seed_is_callers) grad = meta.grad;
}

void AccumulateGrad::accumulate(Grads& grads, bool seed_is_callers, bool recording) {
  // Nothing to add: then grad() is not written and no hook may claim that it was.
  if (!grads[0].defined() || !leaf_.impl().requires_grad) return;
  check_leaf();  // a hook may have given it other data
  engine::journal_leaf_write(leaf_);
  write(grads[0], seed_is_callers, recording);
  run_post_accumulate_hooks(recording);
}

void AccumulateGrad::record_post_accumulate_hook(const HookEntry& entry,
                                                 PostAccumulateGradHook& hook) {
  auto call = [&]() -> variable_list {
    SwapSavedVariables saved;
    hook.apply_with_saved(leaf_, saved);
    return {leaf_.grad()};
  };
  Tensor grad =
      std::move(visit::call_hook(entry, HookKind::post_accumulate, {leaf_, leaf_.grad()}, call)[0]);
  if (!grad.is_same(leaf_.grad())) leaf_.set_grad(std::move(grad));
}

void AccumulateGrad::run_post_accumulate_hooks(bool recording) {
  const HookTable* table = hooks(HookKind::post_accumulate);
  if (!table) return;
  const HookTable::Reader reader(table->lists());
  for (const HookEntry& entry : reader.value().post_accumulate) {
    try {
      const visit::RunningHook running(entry.label, HookKind::post_accumulate, this);
      auto& hook = *static_cast<PostAccumulateGradHook*>(entry.hook.get());
      if (recording) record_post_accumulate_hook(entry, hook);
      else hook(leaf_);
    } catch (...) {
      visit::note_hook(entry.label, HookKind::post_accumulate, *this);
      throw;
    }
    TapeObserver::notify_hook(entry.label, HookKind::post_accumulate, *this,
                              find_meta(leaf_)->grad);
    if (AnomalyMode::should_check_nan()) [[unlikely]] {
      const Tensor grad = grad_now();
      std::unique_lock guard(find_meta(leaf_)->grad_mutex, std::defer_lock);
      if (!recording) guard.lock();
      anomaly::check_hook_result(grad, *this, entry.label, HookKind::post_accumulate);
    }
  }
}

}  // namespace grapnel
