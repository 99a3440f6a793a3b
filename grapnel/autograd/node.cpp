#include "grapnel/autograd/node.h"

#include <atomic>
#include <new>
#include <vector>

#include "grapnel/autograd/anomaly.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/graveyard.h"
#include "grapnel/autograd/hook_table.h"
#include "grapnel/base/foreign.h"
#include "grapnel/base/per_thread.h"
#include "grapnel/base/place.h"
#include "grapnel/base/pool.h"
#include "grapnel/base/source_site.h"

namespace grapnel {

struct Node::AnomalyTrace {
  NodePtr parent;
  std::shared_ptr<const base::Remembered> module;  ///< that was being called
};

namespace {

uint64_t next_sequence_nr() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

/// What waits to be ended on this thread: see Note [Ending chains].
struct Graveyard {
  struct Dying {
    void* object;
    void (*end)(void* object) noexcept;
  };
  std::vector<Dying> waiting;
  bool draining = false;
};
constinit thread_local base::PerThread<Graveyard> graveyard;

/// False if there is no memory left.
bool wait_for_turn(Graveyard& g, const Graveyard::Dying& dying) noexcept {
  try {
    g.waiting.push_back(dying);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

void bury(void* object, void (*end)(void*) noexcept) noexcept {
  Graveyard* g = nullptr;
  try {
    g = &graveyard.get();
  } catch (const std::bad_alloc&) {
    return end(object);
  }
  if (g->draining) {
    if (!wait_for_turn(*g, {object, end})) end(object);
    return;
  }
  g->draining = true;
  end(object);
  while (!g->waiting.empty()) {
    const Graveyard::Dying next = g->waiting.back();
    g->waiting.pop_back();
    next.end(next.object);
  }
  g->draining = false;
}

void* Node::operator new(size_t bytes) { return base::pool_allocate(bytes); }
void Node::operator delete(void* memory, size_t bytes) noexcept {
  base::pool_deallocate(memory, bytes);
}

Node::Node(Kind kind)
    : accumulate_(kind == Kind::accumulate),
      sequence_nr_(accumulate_ ? UINT64_MAX : next_sequence_nr()),
      site_(base::users_call_site()) {
  if (AnomalyMode::is_enabled()) [[unlikely]] {
    anomaly_ = std::make_unique<AnomalyTrace>();
    anomaly_->parent = NodePtr(engine::current_node());
    if (const base::Place* c = base::Place::innermost();
        c && c->kind() == base::Place::Kind::module)
      anomaly_->module = c->remember();
  }
}

Node::~Node() {
  if (wrapper) [[unlikely]]
    base::let_go_of_wrapper(wrapper);
}

void Node::destroy(Node* node) noexcept {
  bury(node, [](void* dying) noexcept { delete static_cast<Node*>(dying); });
}

HookHandle Node::add_hook(HookKind kind, std::shared_ptr<HookBase> hook, HookOptions options) {
  return make_hooks()->add(kind, 0, std::move(hook), std::move(options));
}

namespace {
/// A user's object of the abstract type, as the engine calls it.
class OwnedPreHook final : public NodePreHook {
 public:
  explicit OwnedPreHook(std::unique_ptr<FunctionPreHook> hook) : hook_(std::move(hook)) {}
  ListHookResult call(const variable_list& grad_outputs) override { return (*hook_)(grad_outputs); }
  void compiled_args(CompiledNodeArgs& args) const override { hook_->compiled_args(args); }
  const std::type_info& type() const override { return hook_->type(); }
  const void* foreign() const override { return hook_->foreign(); }

 private:
  std::unique_ptr<FunctionPreHook> hook_;
};
class OwnedPostHook final : public NodePostHook {
 public:
  explicit OwnedPostHook(std::unique_ptr<FunctionPostHook> hook) : hook_(std::move(hook)) {}
  ListHookResult call(const variable_list& grad_inputs,
                      const variable_list& grad_outputs) override {
    return (*hook_)(grad_inputs, grad_outputs);
  }
  void compiled_args(CompiledNodeArgs& args) const override { hook_->compiled_args(args); }
  const std::type_info& type() const override { return hook_->type(); }
  const void* foreign() const override { return hook_->foreign(); }

 private:
  std::unique_ptr<FunctionPostHook> hook_;
};
}  // namespace

HookHandle Node::add_pre_hook(std::unique_ptr<FunctionPreHook> hook, HookOptions options) {
  check(hook != nullptr, "add_pre_hook: the hook is null.");
  return add_hook(HookKind::node_pre, std::make_shared<OwnedPreHook>(std::move(hook)),
                  std::move(options));
}
HookHandle Node::add_post_hook(std::unique_ptr<FunctionPostHook> hook, HookOptions options) {
  check(hook != nullptr, "add_post_hook: the hook is null.");
  return add_hook(HookKind::node_post, std::make_shared<OwnedPostHook>(std::move(hook)),
                  std::move(options));
}

std::string Node::where() const {
  if (!site_) return "an unknown place (made by the library itself)";
  std::string where = base::describe(base::SourceSite{site_});
  return anomaly_ && anomaly_->module ? where + ", " + anomaly_->module->text() : where;
}

const NodePtr& Node::parent() const {
  static const NodePtr& none = *new NodePtr;
  return anomaly_ ? anomaly_->parent : none;
}

}  // namespace grapnel
