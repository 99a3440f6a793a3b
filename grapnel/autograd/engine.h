/// The engine: walks the graph backwards and calls every hook at its point.
///
/// Note [One visit per node]
/// A node is visited once per pass, when everything that flows into it has arrived. Around a visit
/// the phases are those of HookKind, in that order. Ready nodes are taken so that accumulate nodes
/// run at once, in the order of the edges that made them ready, and otherwise the node made last
/// runs first. All state of a pass lives in the pass, so passes on several threads, and passes
/// started by hooks, do not meet.
#pragma once

#include <functional>
#include <optional>

#include "grapnel/autograd/node.h"

namespace grapnel {

struct AutogradMeta;

/// What one pass is asked to do.
struct BackwardRequest {
  TensorList roots;
  TensorList grad_roots;  ///< same number as roots; undefined means 1 for a scalar root
  bool keep_graph = false;
  bool create_graph = false;
  bool accumulate = true;  ///< write into grad() of leaves; otherwise return gradients of `inputs`
  std::optional<TensorList> inputs;
  bool allow_unused = true;
};

namespace engine {

/// Runs one pass; returns one gradient per input when nothing is accumulated.
variable_list run(const BackwardRequest& request);

/// Runs the walk of a pass in its own way: CompiledBackward records it.
class PassRunner {
 public:
  virtual void run(const std::function<void()>& walk) = 0;

 protected:
  ~PassRunner() = default;
};
/// Who runs passes that start on this thread outside a recording; null: nobody special. Returns who
/// did before.
PassRunner* set_pass_runner(PassRunner* runner);

/// Node being visited by the innermost pass of this thread, or null.
Node* current_node();
/// Number of the innermost pass of this thread; 0 outside.
uint64_t current_pass();
/// How many passes are under way on this thread, one inside the other.
int current_depth();
/// Under StrongBackward: remembers a leaf's grad() before the pass first writes it.
void journal_leaf_write(const Tensor& leaf);
/// The same for what retain-grad is about to write; also in a pass of grad() that refuses unused
/// inputs.
void journal_retained(AutogradMeta& tensor);

/// Anything a compound hook needs to keep per pass, by key. Null outside a pass.
std::shared_ptr<void>& pass_state(const void* key);
/// Whether the innermost pass will still reach, or has reached, the node.
bool pass_will_visit(const Node* node);
/// Whether the innermost pass runs the node's formula, and so its node hooks: grad() only passes by
/// the nodes it was asked for.
bool pass_will_run(const Node* node);

}  // namespace engine

namespace autograd {

/// Gradients of `outputs` with respect to `inputs`, without touching any grad(). An input that the
/// outputs do not depend on is an error, raised before any hook is called, unless unused ones are
/// allowed. One that the pass reaches but that gets no gradient (a function returned an undefined
/// one) is the same error at the end of the pass: retained gradients are then as before, but hooks
/// were called, and the graph is used up.
variable_list grad(const variable_list& outputs, const variable_list& inputs,
                   const variable_list& grad_outputs = {}, std::optional<bool> retain_graph = {},
                   bool create_graph = false, bool allow_unused = false);
/// Accumulates gradients of several roots at once.
void backward(const variable_list& tensors, const variable_list& grad_tensors = {},
              std::optional<bool> retain_graph = {}, bool create_graph = false,
              const variable_list& inputs = {});
/// Runs `fn` once after all nodes of the innermost pass; only during a pass.
void queue_callback(std::function<void()> fn);
/// The same after the pass that is `depth` deep: 0 for the one the user started, 1 for one started
/// inside a hook of it, and so on. If there are not so many, the innermost.
void queue_callback(std::function<void()> fn, int depth);

/// While it lives, a pass of this thread that fails leaves grad() of every leaf, and every retained
/// gradient, as it was. What passes wrote that hooks started inside it, and that did not fail,
/// stays as long as the failing pass itself had not written to the same tensor before.
class StrongBackward {
 public:
  StrongBackward();
  ~StrongBackward();
  StrongBackward(const StrongBackward&) = delete;
  StrongBackward& operator=(const StrongBackward&) = delete;

 private:
  bool before_;
};

}  // namespace autograd

using autograd::queue_callback;

}  // namespace grapnel
