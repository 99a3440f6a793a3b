#include "grapnel/autograd/meta.h"

#include <unordered_set>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/graveyard.h"
#include "grapnel/autograd/hooked_views.h"
#include "grapnel/base/context.h"
#include "grapnel/ops/internal.h"
#include "grapnel/ops/record.h"

namespace grapnel {

AutogradMeta& autograd_meta(const Tensor& t) {
  TensorImpl& impl = t.impl();
  if (!impl.autograd) impl.autograd = new AutogradMeta;
  return *impl.autograd;
}

void intrusive_retain(const AutogradMeta* meta) noexcept { meta->refs.retain(); }
void intrusive_release(const AutogradMeta* meta) noexcept {
  if (meta->refs.release()) delete meta;
}

namespace {
// Retain-grad entries and multi-gradient hooks may still hold the meta; what it holds itself goes
// now, which also breaks the cycles through its node and its hooks.
void end_autograd_meta(AutogradMeta* meta) noexcept {
  if (!meta->refs.is_unique()) {
    Tensor grad = std::move(meta->grad);
    NodePtr node = std::move(meta->grad_fn);
    auto view = std::move(meta->view);
    auto hooks = meta->hooks.release();
  }
  intrusive_release(meta);
}
}  // namespace

void release_autograd_meta(AutogradMeta* meta) noexcept {
  meta->alive.store(false, std::memory_order_release);
  // See Note [Ending chains]. Nodes see to theirs themselves.
  if (meta->grad.defined() || meta->hooks.get())
    bury(meta, [](void* dying) noexcept { end_autograd_meta(static_cast<AutogradMeta*>(dying)); });
  else end_autograd_meta(meta);
}

namespace {

struct Override {
  const TensorImpl* tensor;
  Edge edge;
};

void move_retain_grad(AutogradMeta& meta, const NodePtr& from, const NodePtr& to, uint32_t slot) {
  if (!meta.retains_grad) return;
  if (from && from->hooks()) from->hooks()->remove_retain(&meta);
  if (to) to->make_hooks()->add_retain(slot, IntrusivePtr<AutogradMeta>(&meta));
}

/// A leaf that no longer requires grad is changed in place by something that does. Graphs that used
/// it as a leaf own it through its accumulate node, and it is about to own a graph: so they get a
/// stand-in, with its hooks, which wants no gradient either.
void leave_stand_in(const Tensor& leaf, AutogradMeta& meta) {
  IntrusivePtr<AccumulateGrad> node;
  {
    std::lock_guard guard(meta.lock);
    if (meta.accumulator)
      node = IntrusivePtr<AccumulateGrad>(std::exchange(meta.accumulator, nullptr));
  }
  if (!node) return;
  const Tensor stand_in = leaf.detach();
  AutogradMeta& copy = autograd_meta(stand_in);
  copy.accumulator = node.get();
  copy.hooks.adopt(meta.hooks.release());
  node->set_leaf(stand_in);
}

/// Gives a view whose base has a new history a node that starts from the base as it is now.
void refresh_view(const Tensor& t, AutogradMeta& meta) {
  ViewMeta& view = *meta.view;
  const uint64_t number = node_number(view.base);
  if (view.base_node == number || number == 0) return;
  if (meta.grad_fn && meta.grad_fn->hooks() && meta.grad_fn->hooks()->has_user_hooks()) [[unlikely]]
    fail(
        "a tensor is a view of one that was changed in place, so its gradient takes another way; "
        "the "
        "node that it came from, ",
        meta.grad_fn->name(), ", has hooks (", meta.grad_fn->hooks()->infos()[0].place(),
        "), which would never fire again.\nRemove them, or register them after the change.");
  const TensorImpl& impl = t.impl();
  Tensor fresh;
  {
    EnableGradGuard grad;
    fresh = as_strided_view(view.base, {impl.sizes, impl.strides, impl.offset});
  }
  NodePtr before = meta.grad_fn;
  meta.grad_fn = find_meta(fresh)->grad_fn;
  meta.output_nr = find_meta(fresh)->output_nr;
  view.base_node = number;
  t.impl().requires_grad = true;
  move_retain_grad(meta, before, meta.grad_fn, meta.output_nr);
}

}  // namespace

struct EdgeOverrides {
  std::vector<Override> innermost_last;
};

uint64_t node_number(const Tensor& base) {
  const AutogradMeta* meta = find_meta(base);
  return meta && meta->grad_fn ? meta->grad_fn->sequence_nr() + 1 : 0;
}

EdgeOverride::EdgeOverride(const Tensor& t, Edge edge) {
  wanted_in_context<&Context::overrides>().innermost_last.push_back(
      {t.impl_ptr(), std::move(edge)});
}
EdgeOverride::~EdgeOverride() { this_context.overrides->innermost_last.pop_back(); }

const NodePtr& current_grad_fn(const Tensor& t) {
  static const NodePtr& none = *new NodePtr;
  AutogradMeta* meta = find_meta(t);
  if (!meta) return none;
  if (meta->view) refresh_view(t, *meta);
  return meta->grad_fn;
}

NodePtr grad_accumulator(const Tensor& leaf) {
  AutogradMeta& meta = autograd_meta(leaf);
  {
    std::lock_guard guard(meta.lock);
    if (meta.accumulator) return NodePtr(meta.accumulator);
  }
  // Made outside the lock: making a node may let go of another one.
  auto node = IntrusivePtr<AccumulateGrad>::adopt(new AccumulateGrad(leaf));
  IntrusivePtr<AccumulateGrad> winner;
  {
    std::lock_guard guard(meta.lock);
    if (meta.accumulator) winner = IntrusivePtr<AccumulateGrad>(meta.accumulator);
    else meta.accumulator = node.get();
  }
  return winner ? NodePtr(winner) : NodePtr(node);
}

Edge gradient_edge(const Tensor& t) {
  if (const EdgeOverrides* const overrides = this_context.overrides) [[unlikely]]
    for (size_t i = overrides->innermost_last.size(); i-- > 0;)
      if (overrides->innermost_last[i].tensor == t.impl_ptr())
        return overrides->innermost_last[i].edge;
  if (const NodePtr& node = current_grad_fn(t)) return {node, find_meta(t)->output_nr};
  if (!t.impl().requires_grad) return {};
  AutogradMeta& meta = autograd_meta(t);
  if (meta.borrowed_accumulator) return {meta.borrowed_accumulator, 0};
  return {grad_accumulator(t), 0};
}

void set_history(const Tensor& t, NodePtr node, uint32_t slot) {
  AutogradMeta& meta = autograd_meta(t);
  if (meta.accumulator) [[unlikely]]
    leave_stand_in(t, meta);
  NodePtr before = std::exchange(meta.grad_fn, std::move(node));
  meta.output_nr = slot;
  if (meta.view) meta.view->base_node = node_number(meta.view->base);
  t.impl().requires_grad = true;
  move_retain_grad(meta, before, meta.grad_fn, slot);
  // Whatever stood in for the old value's edge does not stand in for the new one's.
  if (EdgeOverrides* const overrides = this_context.overrides) [[unlikely]]
    for (Override& o : overrides->innermost_last)
      if (o.tensor == t.impl_ptr()) o.tensor = nullptr;
}

void hook_view(const Tensor& base, const std::shared_ptr<HookTable>& table) {
  AutogradMeta& meta = autograd_meta(base);
  std::vector<std::weak_ptr<HookTable>> kept;
  // They end after the lock: what hooks hold is the user's.
  std::vector<std::shared_ptr<HookTable>> alive;
  const std::lock_guard guard(meta.lock);
  auto& views = meta.hooked_views;
  const std::weak_ptr<HookTable> fresh = table;
  if (!views.empty() && !views.back().owner_before(fresh) && !fresh.owner_before(views.back()))
    return;
  if (views.size() == views.capacity()) {
    // Instead of growing for ever: what is gone goes, and so do repetitions.
    std::unordered_set<const HookTable*> known;
    for (const auto& view : views) {
      alive.push_back(view.lock());
      if (alive.back() && known.insert(alive.back().get()).second) kept.push_back(view);
    }
    kept.reserve(2 * kept.size() + 4);
    views.swap(kept);
  }
  views.push_back(fresh);
}

std::shared_ptr<HookTable> first_hooked_view(AutogradMeta& base) {
  std::vector<std::weak_ptr<HookTable>> views;
  {
    const std::lock_guard guard(base.lock);
    if (base.hooked_views.empty()) return nullptr;
    views = base.hooked_views;
  }
  for (const auto& view : views)
    if (auto table = view.lock(); table && table->has_user_hooks()) return table;
  return nullptr;
}

const std::shared_ptr<HookTable>& tensor_hook_table(const Tensor& t, uint32_t& slot) {
  if (const NodePtr& node = current_grad_fn(t)) {
    AutogradMeta& meta = *find_meta(t);
    slot = meta.output_nr;
    const auto& table = node->make_hooks();
    if (meta.view) hook_view(meta.view->base, table);
    return table;
  }
  slot = 0;
  return autograd_meta(t).hooks.make();
}

void journal_grad(AutogradMeta& meta) {
  record::on_undo_of(meta.grad, [&] {
    return [kept = IntrusivePtr<AutogradMeta>(&meta)](Tensor before) {
      kept->grad = std::move(before);
    };
  });
}

bool is_sole_owner(const Tensor& t) {
  const TensorImpl& impl = t.impl();
  if (!impl.refs.is_unique() || impl.wrapped_number || impl.inference || impl.requires_grad ||
      impl.storage->borrowed())
    return false;
  const ViewMeta* view = impl.autograd ? impl.autograd->view.get() : nullptr;
  const uint32_t own =
      view && view->base.use_count() == 1 && view->base.impl().storage == impl.storage ? 2 : 1;
  return impl.storage->use_count() - record::holds(*impl.storage) == own;
}

}  // namespace grapnel
