#include "grapnel/autograd/engine.h"

#include <exception>
#include <limits>
#include <thread>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/pass.h"
#include "grapnel/autograd/saved_variable.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace {

/// Passes nested deeper than this on one thread continue on a fresh one, so that the stack cannot
/// overflow.
constexpr int kDepthPerThread = 60;

Pass* innermost() { return Pass::this_thread().pass; }

/// Runs a deeply nested pass on a thread of its own, with the caller's thread-local state.
variable_list run_on_fresh_thread(Pass& pass) {
  variable_list results;
  std::exception_ptr error;
  const Pass::ThreadState state = Pass::this_thread();
  const bool grad = GradMode::is_enabled(), inference = InferenceMode::enabled;
  SavedHookStack& stack = SavedHookStack::current();
  record::Recorder* const recorder = record::current;
  std::thread([&] {
    record::current = recorder;
    Pass::this_thread() = state;
    GradMode::set_enabled(grad);
    InferenceMode::enabled = inference;
    std::swap(SavedHookStack::current(), stack);
    try {
      results = pass.run();
    } catch (...) {
      error = std::current_exception();
    }
    std::swap(SavedHookStack::current(), stack);
  }).join();
  if (error) std::rethrow_exception(error);
  return results;
}

}  // namespace

namespace engine {

variable_list run(const BackwardRequest& request) {
  Pass pass(request);
  if (pass.depth() > 0 && pass.depth() % kDepthPerThread == 0) return run_on_fresh_thread(pass);
  return pass.run();
}

PassRunner* set_pass_runner(PassRunner* runner) {
  return std::exchange(Pass::this_thread().runner, runner);
}

Node* current_node() { return innermost() ? innermost()->current : nullptr; }
uint64_t current_pass() { return innermost() ? innermost()->id() : 0; }
int current_depth() { return innermost() ? innermost()->depth() + 1 : 0; }
void journal_leaf_write(const Tensor& leaf) {
  if (innermost()) innermost()->journal(leaf);
}
std::shared_ptr<void>& pass_state(const void* key) {
  GRAPNEL_ASSERT(innermost(), "pass_state is for hooks");
  return innermost()->state(key);
}
bool pass_will_visit(const Node* node) { return innermost() && innermost()->will_visit(node); }
bool pass_will_run(const Node* node) { return innermost() && innermost()->will_run(node); }

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
  variable_list results = engine::run({.roots = outputs,
                                       .grad_roots = seeds,
                                       .keep_graph = retain_graph.value_or(create_graph),
                                       .create_graph = create_graph,
                                       .accumulate = false,
                                       .inputs = TensorList(inputs)});
  if (!allow_unused)
    for (size_t i = 0; i < results.size(); ++i)
      check(results[i].defined(), "grad: input ", i,
            " was not used to compute the outputs.\nPass allow_unused = true to get an undefined "
            "gradient for it.");
  return results;
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
  queue_callback(std::move(fn), std::numeric_limits<int>::max());
}

void queue_callback(std::function<void()> fn, int depth) {
  Pass* pass = innermost();
  check(pass != nullptr,
        "queue_callback: no backward pass is running on this thread; callbacks are queued from "
        "hooks.");
  while (pass->depth() > depth) pass = pass->outer();
  pass->queue(std::move(fn));
}

StrongBackward::StrongBackward() : before_(std::exchange(Pass::this_thread().strong, true)) {}
StrongBackward::~StrongBackward() { Pass::this_thread().strong = before_; }

}  // namespace autograd
}  // namespace grapnel
