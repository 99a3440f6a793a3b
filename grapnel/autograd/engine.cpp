#include "grapnel/autograd/engine.h"

#include <limits>

#include "grapnel/autograd/pass.h"
#include "grapnel/autograd/pass_failure.h"
#include "grapnel/base/fresh_stack.h"
#include "grapnel/base/place.h"
#include "grapnel/base/source_site.h"

namespace grapnel {

namespace {

/// Passes nested deeper than this on one stack continue on a fresh one, so that it cannot overflow.
constexpr int kDepthPerStack = 60;

Pass* innermost() { return Pass::innermost(); }

}  // namespace

namespace engine {

variable_list run(const BackwardRequest& request) {
  Pass pass(request);
  if (pass.depth() == 0 || pass.depth() % kDepthPerStack != 0) return pass.run();
  variable_list results;
  base::run_on_fresh_stack([&] { results = pass.run(); });
  return results;
}

PassRunner* set_pass_runner(PassRunner* runner) {
  return std::exchange(this_context.pass_runner, runner);
}

Node* current_node() { return innermost() ? innermost()->current : nullptr; }
uint64_t current_pass() { return innermost() ? innermost()->id() : 0; }
int current_depth() { return innermost() ? innermost()->depth() + 1 : 0; }
void journal_leaf_write(const Tensor& leaf) {
  if (innermost()) innermost()->journal(leaf);
}
void journal_retained(AutogradMeta& tensor) {
  if (innermost()) innermost()->journal_retained(tensor);
}
std::shared_ptr<void>& pass_state(const void* key) {
  GRAPNEL_ASSERT(innermost(), "pass_state is for hooks");
  return innermost()->state(key);
}
bool pass_will_visit(const Node* node) { return innermost() && innermost()->will_visit(node); }
bool pass_will_run(const Node* node) { return innermost() && innermost()->will_run(node); }

std::unordered_set<const TensorImpl*> leaves_of_pass() {
  return innermost() ? innermost()->leaves() : std::unordered_set<const TensorImpl*>();
}

}  // namespace engine

namespace autograd {

namespace {
variable_list with_defaults(const variable_list& grads, size_t count) {
  return grads.empty() ? variable_list(count) : grads;
}
}  // namespace

variable_list grad(const variable_list& outputs, const variable_list& inputs,
                   const variable_list& grad_outputs, std::optional<bool> retain_graph,
                   bool create_graph, bool allow_unused) {
  const variable_list seeds = with_defaults(grad_outputs, outputs.size());
  return engine::run({.roots = outputs,
                      .grad_roots = seeds,
                      .keep_graph = retain_graph.value_or(create_graph),
                      .create_graph = create_graph,
                      .accumulate = false,
                      .inputs = TensorList(inputs),
                      .allow_unused = allow_unused});
}

void backward(const variable_list& tensors, const variable_list& grad_tensors,
              std::optional<bool> retain_graph, bool create_graph, const variable_list& inputs) {
  const variable_list seeds = with_defaults(grad_tensors, tensors.size());
  engine::run({.roots = tensors,
               .grad_roots = seeds,
               .keep_graph = retain_graph.value_or(create_graph),
               .create_graph = create_graph,
               .accumulate = true,
               .inputs = inputs.empty() ? std::nullopt : std::optional(TensorList(inputs))});
}

void queue_callback(std::function<void()> fn) {
  const base::SourceSite site{__builtin_return_address(0)};
  queue_callback(
      [fn = std::move(fn), site] {
        try {
          fn();
        } catch (...) {
          base::note("in the end-of-pass callback queued at " + base::describe(site));
          throw;
        }
      },
      std::numeric_limits<int>::max());
}

void queue_callback(std::function<void()> fn, int depth) {
  Pass* pass = innermost();
  check(pass != nullptr,
        "queue_callback: no backward pass is running on this thread; callbacks are queued from "
        "hooks.");
  while (pass->depth() > depth) pass = pass->outer();
  pass->queue(std::move(fn));
}

StrongBackward::StrongBackward() : before_(std::exchange(this_context.strong_backward, true)) {}
StrongBackward::~StrongBackward() { this_context.strong_backward = before_; }

}  // namespace autograd
}  // namespace grapnel
