#include "grapnel/autograd/multi_grad.h"

#include <atomic>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/meta.h"

namespace grapnel {

namespace autograd {

namespace {

/// How to tell whether a pass will reach a listed tensor, without keeping the tensor or its node
/// alive.
struct Place {
  IntrusivePtr<AutogradMeta> leaf;  ///< leaves: the accumulate node may be another one in each pass
  const Node* node = nullptr;       ///< others: compared, never followed

  explicit Place(const Tensor& t) {
    if (const NodePtr& fn = current_grad_fn(t)) node = fn.get();
    else leaf = IntrusivePtr<AutogradMeta>(&autograd_meta(t));
  }
  bool will_be_visited() const {
    if (!leaf) return engine::pass_will_visit(node);
    const Node* accumulator = nullptr;
    {
      std::lock_guard guard(leaf->lock);
      accumulator = leaf->accumulator;
    }
    return accumulator && engine::pass_will_visit(accumulator);
  }
};

/// The handle's owner: removing the compound removes its parts. It lives as long as any part does.
class Compound final : public HookOwner {
 public:
  std::vector<Place> places;
  /// How many of the listed tensors the pass will reach. A part whose node is gone is not active
  /// any more, and another node may be in its place.
  size_t expected() const {
    size_t n = 0;
    for (size_t i = 0; i < places.size(); ++i)
      n += parts_[i].active() && places[i].will_be_visited();
    return n;
  }
  void add_part(HookHandle part) { parts_.push_back(std::move(part)); }
  /// Passes on other threads may meet the first parts before the last one is registered. Until this
  /// is called they pass them by, and from then on the parts stay as they are.
  void complete() { complete_.store(true, std::memory_order_release); }
  bool is_complete() const { return complete_.load(std::memory_order_acquire); }
  void remove_hook(uint64_t) override {
    for (HookHandle& part : parts_) part.remove();
  }
  bool has_hook(uint64_t) const override {
    for (const HookHandle& part : parts_)
      if (part.active()) return true;
    return false;
  }

 private:
  std::vector<HookHandle> parts_;
  std::atomic<bool> complete_{false};
};

struct AllState {
  variable_list grads;
  size_t expected = 0, seen = 0;
};

AllState& all_state(const Compound& compound) {
  std::shared_ptr<void>& state = engine::pass_state(&compound);
  if (!state) {
    auto fresh = std::make_shared<AllState>();
    fresh->grads.resize(compound.places.size());
    fresh->expected = compound.expected();
    state = std::move(fresh);
  }
  return *static_cast<AllState*>(state.get());
}

void check_list(const variable_list& tensors) {
  check(!tensors.empty(), "register_multi_grad_hook: the list of tensors is empty.");
}

HookHandle handle_of(const std::shared_ptr<Compound>& compound) {
  compound->complete();
  return HookHandle(next_hook_id(), compound);
}

}  // namespace

HookHandle register_all_grads_hook(const variable_list& tensors, AllGradsFn fn,
                                   HookOptions options) {
  check_list(tensors);
  for (size_t i = 0; i < tensors.size(); ++i)
    check(tensors[i].defined() && tensors[i].requires_grad(), "register_multi_grad_hook: tensor ",
          i, " does not require grad, so not all gradients can arrive.");
  auto compound = std::make_shared<Compound>();
  auto call = std::make_shared<AllGradsFn>(std::move(fn));
  for (const Tensor& t : tensors) compound->places.emplace_back(t);
  for (size_t i = 0; i < tensors.size(); ++i)
    compound->add_part(tensors[i].register_hook(
        [compound, call, i](const Tensor& grad) {
          if (!compound->is_complete()) return;
          AllState& state = all_state(*compound);
          state.grads[i] = grad;
          if (++state.seen == state.expected) {
            const variable_list grads = std::move(state.grads);
            (*call)(grads);
          }
        },
        options));
  return handle_of(compound);
}

HookHandle register_any_grad_hook(const variable_list& tensors, AnyGradFn fn, HookOptions options) {
  check_list(tensors);
  auto compound = std::make_shared<Compound>();
  auto call = std::make_shared<AnyGradFn>(std::move(fn));
  for (const Tensor& t : tensors) {
    if (!t.defined() || !t.requires_grad()) continue;
    compound->add_part(t.register_hook(
        [compound, call](const Tensor& grad) {
          if (!compound->is_complete()) return;
          std::shared_ptr<void>& done = engine::pass_state(compound.get());
          if (done) return;
          done = std::make_shared<bool>(true);
          (*call)(grad);
        },
        options));
  }
  return handle_of(compound);
}

HookHandle register_all_post_accumulate_hook(const variable_list& leaves, AllGradsFn fn,
                                             HookOptions options) {
  check_list(leaves);
  auto compound = std::make_shared<Compound>();
  auto call = std::make_shared<AllGradsFn>(std::move(fn));
  for (const Tensor& t : leaves) compound->places.emplace_back(t);
  for (size_t i = 0; i < leaves.size(); ++i)
    compound->add_part(leaves[i].register_post_accumulate_grad_hook(
        [compound, call, i](const Tensor& leaf) {
          if (!compound->is_complete()) return;
          AllState& state = all_state(*compound);
          state.grads[i] = leaf;
          if (++state.seen == state.expected) {
            const variable_list reached = std::move(state.grads);
            (*call)(reached);
          }
        },
        options));
  return handle_of(compound);
}

}  // namespace autograd

std::vector<HookInfo> hooks_of(const Node& node) {
  const HookTable* table = node.hooks();
  return table ? table->infos() : std::vector<HookInfo>();
}

std::vector<HookInfo> hooks_of(const Tensor& tensor) {
  const AutogradMeta* meta = find_meta(tensor);
  if (!meta) return {};
  if (const NodePtr& node = current_grad_fn(tensor)) {
    std::vector<HookInfo> mine;
    for (HookInfo& info : hooks_of(*node))
      if (info.kind == HookKind::tensor && info.slot == static_cast<int>(meta->output_nr))
        mine.push_back(std::move(info));
    return mine;
  }
  const HookTable* table = meta->hooks.get();
  return table ? table->infos() : std::vector<HookInfo>();
}

}  // namespace grapnel
