#include "grapnel/autograd/node.h"

#include <atomic>

#include "grapnel/autograd/anomaly.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/hook_table.h"
#include "grapnel/base/context.h"
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

/// Nodes waiting to be deleted on this thread. A node's destructor lets go of its inputs; they join
/// the queue instead of being destroyed inside it, so a chain of a million nodes needs no deep
/// stack.
struct Graveyard {
  std::vector<Node*> waiting;
  bool draining = false;
};
thread_local Graveyard graveyard;

}  // namespace

Node::Node(Kind kind)
    : accumulate_(kind == Kind::accumulate),
      sequence_nr_(accumulate_ ? UINT64_MAX : next_sequence_nr()),
      site_(base::users_call_site()) {
  if (AnomalyMode::is_enabled()) [[unlikely]] {
    anomaly_ = std::make_unique<AnomalyTrace>();
    anomaly_->parent = NodePtr(engine::current_node());
    if (const base::Context* c = base::Context::innermost();
        c && c->kind() == base::Context::Kind::module)
      anomaly_->module = c->remember();
  }
}

Node::~Node() = default;

void Node::destroy(Node* node) noexcept {
  if (graveyard.draining) {
    graveyard.waiting.push_back(node);
    return;
  }
  graveyard.draining = true;
  delete node;
  while (!graveyard.waiting.empty()) {
    Node* next = graveyard.waiting.back();
    graveyard.waiting.pop_back();
    delete next;
  }
  graveyard.draining = false;
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
  static const NodePtr none;
  return anomaly_ ? anomaly_->parent : none;
}

}  // namespace grapnel
