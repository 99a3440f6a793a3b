#include "grapnel/autograd/multi_grad.h"

#include <atomic>
#include <span>
#include <unordered_set>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/visit.h"

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
  const uint64_t id = next_hook_id();
  std::vector<Place> places;
  /// How many of the listed tensors the pass will reach. A part whose node is gone is not active
  /// any more, and another node may be in its place.
  size_t expected() const {
    size_t n = 0;
    for (size_t i = 0; i < parts_.size(); ++i)
      n += parts_[i].active() && places[i].will_be_visited();
    return n;
  }
  void add_part(const Tensor& t, HookHandle part) {
    const NodePtr& node = current_grad_fn(t);
    (node ? node->make_hooks() : autograd_meta(t).hooks.make())->add_stands_for(part.id(), id);
    parts_.push_back(std::move(part));
  }
  /// All parts or none: those that are there go again when a later one is refused.
  template <class Register>
  static HookHandle make(const std::shared_ptr<Compound>& compound, Register&& add_all) {
    try {
      add_all();
      compound->complete_.store(true, std::memory_order_release);
    } catch (...) {
      compound->remove_hook(compound->id);
      throw;
    }
    return HookHandle(compound->id, compound);
  }
  /// Passes on other threads may meet the first parts before the last one is registered. Until all
  /// are there they pass them by, and from then on the parts stay as they are.
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

void check_list(const variable_list& tensors, const char* what) {
  check(!tensors.empty(), what, ": the list of tensors is empty.");
}

/// The hook of a part fires with one gradient; the compound's own is shown several.
struct CompoundCall {
  AllGradsFn fn;
  HookLabel label;
  /// Gradients may not be changed; leaves, with their grad(), may.
  void operator()(const variable_list& shown, HookKind kind) const {
    const visit::RunningHook running(
        label, kind, nullptr,
        kind == HookKind::multi_grad ? std::span(shown) : std::span<const Tensor>());
    fn(shown);
    running.check_unchanged();
  }
};

}  // namespace

HookHandle register_all_grads_hook(const variable_list& tensors, AllGradsFn fn,
                                   HookOptions options) {
  check_list(tensors, "register_multi_grad_hook");
  for (size_t i = 0; i < tensors.size(); ++i)
    check(tensors[i].defined() && tensors[i].requires_grad(), "register_multi_grad_hook: tensor ",
          i, " does not require grad, so not all gradients can arrive.");
  auto compound = std::make_shared<Compound>();
  auto call = std::make_shared<CompoundCall>(
      CompoundCall{std::move(fn), {options.name, options.site}});
  for (const Tensor& t : tensors) compound->places.emplace_back(t);
  return Compound::make(compound, [&] {
    for (size_t i = 0; i < tensors.size(); ++i)
      compound->add_part(
          tensors[i], tensors[i].register_hook(
                          [compound, call, i](const Tensor& grad) {
                            if (!compound->is_complete()) return;
                            AllState& state = all_state(*compound);
                            state.grads[i] = grad;
                            if (++state.seen == state.expected) {
                              const variable_list grads = std::move(state.grads);
                              (*call)(grads, HookKind::multi_grad);
                            }
                          },
                          options));
  });
}

HookHandle register_any_grad_hook(const variable_list& tensors, AnyGradFn fn, HookOptions options) {
  check_list(tensors, "register_multi_grad_hook");
  auto compound = std::make_shared<Compound>();
  auto call = std::make_shared<AnyGradFn>(std::move(fn));
  return Compound::make(compound, [&] {
    for (const Tensor& t : tensors) {
      if (!t.defined() || !t.requires_grad()) continue;
      compound->add_part(t, t.register_hook(
                                [compound, call](const Tensor& grad) {
                                  if (!compound->is_complete()) return;
                                  std::shared_ptr<void>& done = engine::pass_state(compound.get());
                                  if (done) return;
                                  done = std::make_shared<bool>(true);
                                  (*call)(grad);
                                },
                                options));
    }
  });
}

HookHandle register_all_post_accumulate_hook(const variable_list& leaves, AllGradsFn fn,
                                             HookOptions options) {
  check_list(leaves, "register_multi_post_accumulate_grad_hook");
  for (size_t i = 0; i < leaves.size(); ++i)
    check(leaves[i].defined() && leaves[i].is_leaf() && leaves[i].requires_grad(),
          "register_multi_post_accumulate_grad_hook: tensor ", i,
          !leaves[i].defined()   ? " is undefined."
          : !leaves[i].is_leaf() ? " is the result of an operation; only leaves accumulate a "
                                   "gradient."
                                 : " does not require grad, so it never gets a gradient.");
  auto compound = std::make_shared<Compound>();
  auto call = std::make_shared<CompoundCall>(
      CompoundCall{std::move(fn), {options.name, options.site}});
  for (const Tensor& t : leaves) compound->places.emplace_back(t);
  return Compound::make(compound, [&] {
    for (size_t i = 0; i < leaves.size(); ++i)
      compound->add_part(leaves[i], leaves[i].register_post_accumulate_grad_hook(
                                        [compound, call, i](const Tensor& leaf) {
                                          if (!compound->is_complete()) return;
                                          AllState& state = all_state(*compound);
                                          state.grads[i] = leaf;
                                          if (++state.seen == state.expected) {
                                            const variable_list reached = std::move(state.grads);
                                            (*call)(reached, HookKind::multi_post_accumulate);
                                          }
                                        },
                                        options));
  });
}

}  // namespace autograd

bool will_fire(const HookHandle& hook, const Tensor& loss) {
  check(loss.defined() && loss.requires_grad(),
        "will_fire: the tensor does not require grad, so no pass can start from it.");
  if (!hook.active()) return false;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> stack;
  const auto reach = [&](const Edge& edge) {
    if (edge && seen.insert(edge.node.get()).second) stack.push_back(edge.node.get());
  };
  const Edge start = gradient_edge(loss);  // kept: a leaf's node lives no longer than its users
  reach(start);
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (const HookTable* table = node->hooks(); table && table->calls(hook.id())) return true;
    for (const Edge& edge : node->next_edges()) reach(edge);
  }
  return false;
}

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
