#include "grapnel/autograd/engine.h"

#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <thread>
#include <unordered_map>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/anomaly.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/node_map.h"
#include "grapnel/autograd/saved_variable.h"
#include "grapnel/autograd/visit.h"
#include "grapnel/base/log.h"
#include "grapnel/base/source_site.h"
#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace {

/// Passes nested deeper than this on one thread continue on a fresh one, so that the stack cannot overflow.
constexpr int kDepthPerThread = 60;

class Pass;
struct ThreadState {
  Pass* pass = nullptr;
  bool strong = false;
  engine::PassRunner* runner = nullptr;
};
constinit thread_local ThreadState thread_state;

std::atomic<uint64_t> pass_counter{0};

class Pass {
 public:
  explicit Pass(const BackwardRequest& request)
      : request_(request), outer_(thread_state.pass), id_(++pass_counter), depth_(outer_ ? outer_->depth_ + 1 : 0),
        strong_(thread_state.strong), check_nan_(AnomalyMode::should_check_nan()) {}

  variable_list run() {
    struct Enter {
      ThreadState before = thread_state;
      explicit Enter(Pass* p) { thread_state.pass = p; }
      ~Enter() { thread_state = before; }
    } enter(this);
    AutoGradMode mode(request_.create_graph);
    // What runs below is the user's (hooks, callbacks), or has the place of the node whose formula it is.
    base::UserCodeScope user;
    try {
      engine::PassRunner* const runner = record::active() ? nullptr : thread_state.runner;
      if (runner) runner->run([this] { walk_graph(); });
      else walk_graph();
      for (size_t i = 0; i < callbacks_.size(); ++i) {
        const auto callback = std::move(callbacks_[i]);
        callback();
      }
    } catch (...) {
      report_anomaly();
      roll_back();
      throw;
    }
    return std::move(results_);
  }

  Node* current = nullptr;
  bool in_formula = false;
  bool user_exception = false;

  Pass* outer() const { return outer_; }
  uint64_t id() const { return id_; }
  int depth() const { return depth_; }
  void queue(std::function<void()> fn) { callbacks_.push_back(std::move(fn)); }
  std::shared_ptr<void>& state(const void* key) { return states_by_key_[key]; }
  bool will_visit(const Node* node) const {
    const int64_t i = nodes_.find(node);
    return i >= 0 && states_[static_cast<size_t>(i)].walked && reached(static_cast<size_t>(i));
  }
  bool will_run(const Node* node) const { return will_visit(node) && states_[static_cast<size_t>(nodes_.find(node))].execute; }
  void journal(const Tensor& leaf) {
    if (!strong_) return;
    AutogradMeta& meta = *find_meta(leaf);
    if (!journal_.try_emplace(&meta, leaf, Tensor(), Tensor()).second) return;
    auto& [tensor, grad, values] = journal_.at(&meta);
    std::lock_guard guard(meta.grad_mutex);
    grad = meta.grad;
    if (grad.defined()) {
      NoGradGuard no_grad;
      values = grad.detach().clone();
    }
  }

 private:
  void walk_graph() {
    struct Walking {
      Walking() { ++record::walks; }
      ~Walking() { --record::walks; }
    } walking;
    seed();
    while (pop_and_visit()) {
    }
    // A recorded walk that fails has freed nothing; one that succeeds frees before the graph runs, so that what only the graph
    // needs is never stored.
    for (const NodePtr& node : consumed_) node->release_saved();
    consumed_.clear();
  }

  struct State {
    Node* node;
    int32_t waiting_for = 0;
    bool execute = true;
    bool target = false;  ///< asked for by `inputs`
    bool walked = false;  ///< on a way from a root
    Grads buffers;
  };
  struct Wanted {
    size_t state;
    uint32_t slot;
    size_t result;                       ///< captured into results_[result], or
    IntrusivePtr<AutogradMeta> retained;  ///< kept in this non-leaf's grad() for this pass
  };

  size_t discover(Node* node) {
    const auto [index, added] = nodes_.insert(node, static_cast<uint32_t>(states_.size()));
    if (added) states_.push_back({node, 0, true, false, false, {}});
    return index;
  }

  void seed() {
    check(request_.roots.size() == request_.grad_roots.size(), "backward: ", request_.roots.size(), " tensors but ", request_.grad_roots.size(),
          " gradients for them.");
    SmallVector<Edge, 2> edges;
    Grads seeds;
    for (size_t i = 0; i < request_.roots.size(); ++i) {
      const Tensor& root = request_.roots[i];
      check(root.defined(), "backward: tensor ", i, " is undefined.");
      check(tape::tracks(root), "backward: tensor ", i, " does not require grad and has no history, so there is nothing to differentiate.");
      edges.push_back(gradient_edge(root));
      seeds.push_back(seed_for(root, request_.grad_roots[i], i));
      root_nodes_.push_back(edges.back().node);
    }
    add_targets();
    for (const Edge& edge : edges) walk(edge.node.get());
    if (request_.inputs) collect_wanted();
    for (size_t i = 0; i < edges.size(); ++i) {
      State& s = states_[discover(edges[i].node.get())];
      arrive(s, edges[i].slot, seeds[i]);
    }
    for (const Edge& edge : edges) {
      const size_t index = discover(edge.node.get());
      State& s = states_[index];
      // A root that another root leads to waits for it; a root given twice is visited once.
      if (s.waiting_for == 0 && (s.execute || s.target)) {
        s.waiting_for = -1;
        make_ready(index);
      }
    }
  }

  Tensor seed_for(const Tensor& root, const Tensor& given, size_t i) {
    if (!given.defined()) {
      check(root.numel() == 1, "backward: tensor ", i, " has shape ", root.shape(), "; a gradient can be made up only for one element.\n"
            "Pass one of the same shape, or reduce to a scalar first (sum, mean).");
      return ones_like(root);
    }
    check(given.shape() == root.shape(), "backward: the gradient for tensor ", i, " has shape ", given.shape(), ", expected ", root.shape(), ".");
    check(is_floating(given.dtype()), "backward: the gradient for tensor ", i, " has type ", given.dtype(), ", expected ", root.dtype(), ".");
    callers_seeds_.push_back(given.impl_ptr());
    return given.dtype() == root.dtype() ? given : given.to(root.dtype());
  }

  void add_targets() {
    if (!request_.inputs) return;
    check(!request_.inputs->empty(), request_.accumulate ? "backward" : "grad", ": the list of inputs is empty.\nLeave it out to differentiate all leaves.");
    for (const Tensor& input : *request_.inputs) {
      check(input.defined() && tape::tracks(input), request_.accumulate ? "backward" : "grad",
            ": one of the inputs does not require grad.");
      target_edges_.push_back(gradient_edge(input));
      const size_t index = discover(target_edges_.back().node.get());
      states_[index].target = true;
    }
  }

  /// Counts how many edges lead to each node, and finds out which nodes have to run.
  void walk(Node* root) {
    struct Frame {
      size_t index;
      size_t next_edge;
    };
    const size_t first = discover(root);
    if (std::exchange(states_[first].walked, true)) return;
    const bool limited = request_.inputs.has_value();
    if (limited) states_[first].execute = false;
    std::vector<Frame> stack{{first, 0}};
    while (!stack.empty()) {
      Frame& frame = stack.back();
      Node* node = states_[frame.index].node;
      if (frame.next_edge < node->num_outputs()) {
        const Edge& edge = node->next_edge(frame.next_edge++);
        if (!edge) continue;
        const size_t child = discover(edge.node.get());
        ++states_[child].waiting_for;
        if (std::exchange(states_[child].walked, true)) {
          if (limited && reached(child)) states_[frame.index].execute = true;
          continue;
        }
        if (limited) states_[child].execute = false;
        stack.push_back({child, 0});
        continue;
      }
      State& s = states_[frame.index];
      // backward(inputs=) also runs the nodes of the inputs themselves; grad() only passes by.
      if (limited && s.target && request_.accumulate) s.execute = true;
      const bool needed = !limited || reached(frame.index);
      stack.pop_back();
      if (limited && needed && !stack.empty()) states_[stack.back().index].execute = true;
    }
  }
  bool reached(size_t i) const { return states_[i].execute || states_[i].target; }

  void collect_wanted() {
    results_.resize(request_.accumulate ? 0 : request_.inputs->size());
    for (size_t i = 0; i < target_edges_.size(); ++i) {
      const Edge& edge = target_edges_[i];
      const size_t index = discover(edge.node.get());
      if (!request_.accumulate) {
        wanted_.push_back({index, edge.slot, i, {}});
      } else if (!edge.node->is_accumulate()) {
        AutogradMeta& meta = *find_meta((*request_.inputs)[i]);
        if (!meta.retains_grad) wanted_.push_back({index, edge.slot, 0, IntrusivePtr<AutogradMeta>(&meta)});
      }
    }
  }

  void make_ready(size_t index) {
    const Node* node = states_[index].node;
    if (node->is_accumulate()) {
      leaves_.push_back(index);
    } else {
      heap_.push_back({node->sequence_nr(), ~order_++, index});
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  bool pop_and_visit() {
    size_t index;
    if (!leaves_.empty()) {
      index = leaves_.front();
      leaves_.pop_front();
    } else if (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      index = heap_.back().index;
      heap_.pop_back();
    } else {
      return false;
    }
    visit_node(index);
    return true;
  }

  void arrive(State& s, uint32_t slot, Tensor grad) {
    if (s.buffers.empty()) s.buffers.resize(s.node->num_inputs());
    if (!grad.defined()) return;
    Tensor& buffer = s.buffers[slot];
    if (!buffer.defined()) {
      buffer = std::move(grad);
    } else if (!request_.create_graph && buffer.is_contiguous() && buffer.dtype() == grad.dtype() && is_sole_owner(buffer)) {
      buffer.add_(grad);
    } else {
      buffer = buffer + grad;
    }
  }

  void visit_node(size_t index) {
    Node& node = *states_[index].node;
    Grads grads = std::move(states_[index].buffers);
    if (grads.empty()) grads.resize(node.num_inputs());
    current = &node;
    told_.node = &node;
    if (const HookTable* table = node.hooks()) visit::run_tensor_hooks(*table, grads, told_);
    if (!wanted_.empty()) take_wanted(index, grads);
    if (!states_[index].execute) return;
    if (const HookTable* table = node.hooks(HookKind::node_pre)) visit::run_pre_hooks(node, *table, grads);

    Grads outputs;
    if (node.is_accumulate()) {
      static_cast<AccumulateGrad&>(node).accumulate(grads, is_callers_seed(grads[0]));
    } else {
      outputs = run_formula(node, grads);
      visit::validate_outputs(node, outputs);
    }
    if (const HookTable* table = node.hooks(HookKind::node_post)) visit::run_post_hooks(node, *table, outputs, grads);
    if (!request_.keep_graph) {
      if (record::active()) consumed_.emplace_back(&node);
      else node.release_saved();
    }
    if (check_nan_) [[unlikely]] anomaly::check_node_result(outputs, node);
    grads.clear();
    current = nullptr;

    for (size_t i = 0; i < outputs.size(); ++i) {
      const Edge& edge = node.next_edge(i);
      if (!edge) continue;
      const size_t next = discover(edge.node.get());
      State& s = states_[next];
      if (!s.execute && !s.target) continue;
      arrive(s, edge.slot, std::move(outputs[i]));
      // Only the last producer makes a node ready: see Note [One visit per node].
      if (--s.waiting_for == 0) make_ready(next);
    }
  }

  Grads run_formula(Node& node, const Grads& grads) {
    for (Pass* p = outer_; p; p = p->outer_)
      if (p->in_formula && p->current == &node) [[unlikely]]
        fail("backward: the node of ", node.name(), " (called at ", node.where(),
             ") is already running in an outer pass on this thread; a pass started inside it may not run it again.");
    in_formula = true;
    struct Leave {
      bool& flag;
      ~Leave() { flag = false; }
    } leave{in_formula};
    if (node.is_user_code()) {
      record::before_user_code();
      return node.apply(grads);
    }
    base::CallSiteScope library(node.site());
    try {
      return node.apply(grads);
    } catch (const Error& e) {
      if (user_exception) throw;
      throw Error(str(e.what(), "\n(in the backward of ", node.name(), ", node ", visited_name(node), ")"));
    }
  }
  std::string visited_name(const Node& node) const { return str(nodes_.find(&node) + 1, " of ", states_.size()); }

  void take_wanted(size_t index, const Grads& grads) {
    for (const Wanted& w : wanted_) {
      if (w.state != index) continue;
      if (w.retained) visit::write_retained(*w.retained, grads[w.slot]);
      else results_[w.result] = grads[w.slot];
    }
  }

  bool is_callers_seed(const Tensor& grad) const {
    return grad.defined() && std::find(callers_seeds_.begin(), callers_seeds_.end(), grad.impl_ptr()) != callers_seeds_.end();
  }

  /// Under anomaly mode, says where the node that was being visited came from. The exception itself stays as it is.
  void report_anomaly() const {
    if (AnomalyMode::is_enabled() && current) base::warn(str("backward failed in ", current->name(), ".\n", anomaly::trace(*current)));
  }

  void roll_back() {
    NoGradGuard no_grad;
    for (auto& [meta, entry] : journal_) {
      auto& [leaf, grad, values] = entry;
      if (grad.defined()) grad.detach().copy_(values);
      std::lock_guard guard(meta->grad_mutex);
      meta->grad = grad;
    }
  }

  struct Ready {
    uint64_t sequence;
    uint64_t order;
    size_t index;
    friend bool operator<(const Ready& a, const Ready& b) { return a.sequence != b.sequence ? a.sequence < b.sequence : a.order < b.order; }
  };

  const BackwardRequest& request_;
  Pass* const outer_;
  const uint64_t id_;
  const int depth_;
  const bool strong_, check_nan_;
  NodeMap nodes_;
  std::vector<State> states_;
  SmallVector<NodePtr, 2> root_nodes_;
  HookContext told_{.pass = id_, .depth = depth_, .creates_graph = request_.create_graph, .label = nullptr};
  SmallVector<Edge, 2> target_edges_;
  SmallVector<const TensorImpl*, 2> callers_seeds_;
  std::vector<Wanted> wanted_;
  std::vector<Ready> heap_;
  uint64_t order_ = 0;
  std::deque<size_t> leaves_;
  variable_list results_;
  std::vector<NodePtr> consumed_;  ///< whose saved values are freed at the end
  std::vector<std::function<void()>> callbacks_;
  std::unordered_map<const void*, std::shared_ptr<void>> states_by_key_;
  std::map<AutogradMeta*, std::tuple<Tensor, Tensor, Tensor>> journal_;
};

/// Runs a deeply nested pass on a thread of its own, with the caller's thread-local state.
variable_list run_on_fresh_thread(Pass& pass) {
  variable_list results;
  std::exception_ptr error;
  const ThreadState state = thread_state;
  const bool grad = GradMode::is_enabled(), inference = InferenceMode::enabled;
  SavedHookStack& stack = SavedHookStack::current();
  record::Recorder* const recorder = record::current;
  std::thread([&] {
    record::current = recorder;
    thread_state = state;
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

PassRunner* set_pass_runner(PassRunner* runner) { return std::exchange(thread_state.runner, runner); }

Node* current_node() { return thread_state.pass ? thread_state.pass->current : nullptr; }
uint64_t current_pass() { return thread_state.pass ? thread_state.pass->id() : 0; }
int current_depth() { return thread_state.pass ? thread_state.pass->depth() + 1 : 0; }
void journal_leaf_write(const Tensor& leaf) {
  if (thread_state.pass) thread_state.pass->journal(leaf);
}
void mark_user_exception() {
  if (thread_state.pass) thread_state.pass->user_exception = true;
}
std::shared_ptr<void>& pass_state(const void* key) {
  GRAPNEL_ASSERT(thread_state.pass, "pass_state is for hooks");
  return thread_state.pass->state(key);
}
bool pass_will_visit(const Node* node) { return thread_state.pass && thread_state.pass->will_visit(node); }
bool pass_will_run(const Node* node) { return thread_state.pass && thread_state.pass->will_run(node); }

}  // namespace engine

namespace autograd {

namespace {
variable_list with_defaults(const variable_list& grads, size_t count) { return grads.empty() ? variable_list(count) : grads; }
}  // namespace

variable_list grad(const variable_list& outputs, const variable_list& inputs, const variable_list& grad_outputs, std::optional<bool> retain_graph,
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
      check(results[i].defined(), "grad: input ", i, " was not used to compute the outputs.\nPass allow_unused = true to get an undefined gradient for it.");
  return results;
}

void backward(const variable_list& tensors, const variable_list& grad_tensors, std::optional<bool> retain_graph, bool create_graph,
              const variable_list& inputs) {
  const variable_list seeds = with_defaults(grad_tensors, tensors.size());
  engine::run({.roots = tensors,
               .grad_roots = seeds,
               .keep_graph = retain_graph.value_or(create_graph),
               .create_graph = create_graph,
               .accumulate = true,
               .inputs = inputs.empty() ? std::nullopt : std::optional(TensorList(inputs))});
}

void queue_callback(std::function<void()> fn) {
  check(thread_state.pass != nullptr, "queue_callback: no backward pass is running on this thread; callbacks are queued from hooks.");
  thread_state.pass->queue(std::move(fn));
}

StrongBackward::StrongBackward() : before_(std::exchange(thread_state.strong, true)) {}
StrongBackward::~StrongBackward() { thread_state.strong = before_; }

}  // namespace autograd
}  // namespace grapnel
