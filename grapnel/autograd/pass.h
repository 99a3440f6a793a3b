/// One backward pass: all of its state. pass_prepare.cpp finds out what the pass will visit,
/// pass.cpp visits it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/hook_table.h"
#include "grapnel/autograd/node_map.h"
#include "grapnel/base/context.h"

namespace grapnel {

class Pass {
 public:
  explicit Pass(const BackwardRequest& request);
  variable_list run();

  /// The innermost one of this thread, or null. A pass puts back this and nothing else of the
  /// context: scopes that begin or end inside it have set the rest as it is to be.
  static Pass* innermost() { return this_context.pass; }

  Node* current = nullptr;
  const Grads* in_formula = nullptr;  ///< what the formula of `current` is given, while it runs

  Pass* outer() const { return outer_; }
  uint64_t id() const { return id_; }
  int depth() const { return depth_; }
  void queue(std::function<void()> fn) { callbacks_.push_back(std::move(fn)); }
  std::shared_ptr<void>& state(const void* key) { return states_by_key_[key]; }
  bool will_visit(const Node* node) const {
    const int64_t i = nodes_.find(node);
    return i >= 0 && states_[static_cast<size_t>(i)].walked && reached(static_cast<size_t>(i));
  }
  bool will_run(const Node* node) const {
    return will_visit(node) && states_[static_cast<size_t>(nodes_.find(node))].execute;
  }
  /// The leaves that are accumulated into.
  std::unordered_set<const TensorImpl*> leaves() const;
  /// Remembers grad() of a leaf, or a retained gradient, before it is first written, if this pass
  /// restores it when it fails.
  void journal(const Tensor& leaf);
  void journal_retained(AutogradMeta& tensor);

 private:
  struct State {
    Node* node;
    int32_t waiting_for = 0;
    bool execute = true;
    bool target = false;  ///< asked for by `inputs`
    bool walked = false;  ///< on a way from a root
    uint32_t writes = 0;  ///< visit::writes_to(buffers), see Note [Looking, not writing]
    Grads buffers;
  };
  /// grad() of a tensor before this pass wrote it.
  struct Before {
    IntrusivePtr<AutogradMeta> tensor;
    Tensor grad;
    Tensor values;  ///< of grad(), which may be added to in place
  };
  struct Wanted {
    size_t state;
    uint32_t slot;
    size_t result;                        ///< captured into results_[result], or
    IntrusivePtr<AutogradMeta> retained;  ///< kept in this non-leaf's grad() for this pass
  };
  struct Ready {
    uint64_t sequence;
    uint64_t order;
    size_t index;
    friend bool operator<(const Ready& a, const Ready& b) {
      return a.sequence != b.sequence ? a.sequence < b.sequence : a.order < b.order;
    }
  };

  size_t discover(Node* node) {
    const auto [index, added] = nodes_.insert(node, static_cast<uint32_t>(states_.size()));
    if (added) states_.push_back({.node = node, .buffers = {}});
    return index;
  }
  bool reached(size_t i) const { return states_[i].execute || states_[i].target; }

  // Preparing: which nodes, how many edges lead to each, and what arrives at the roots.
  void seed();
  Tensor seed_for(const Tensor& root, const Tensor& given, size_t i);
  void add_targets();
  void walk(Node* root);
  void collect_wanted();
  void refuse_unused(size_t input) const;

  // Running.
  void walk_graph();
  void make_ready(size_t index);
  [[noreturn, gnu::cold]] void fail_written(const Node& node) const;
  void check_results() const;
  bool pop_and_visit();
  void arrive(State& s, uint32_t slot, Tensor grad);
  void visit_node(size_t index);
  Grads run_formula(Node& node, const Grads& grads);
  void check_outputs(const Node& node, const Grads& outputs) const;
  void take_wanted(size_t index, const Grads& grads);
  bool is_callers_seed(const Tensor& grad) const;
  void note_formula(const Node& node) const;
  void report_anomaly() const;
  void roll_back();

  const BackwardRequest& request_;
  Pass* const outer_;
  const uint64_t id_;
  const int depth_;
  const bool strong_, check_nan_;
  bool recording_ = false;  ///< for the whole walk
  NodeMap nodes_;
  std::vector<State> states_;
  SmallVector<NodePtr, 2> root_nodes_;
  HookContext told_{
      .pass = id_, .depth = depth_, .creates_graph = request_.create_graph, .label = nullptr};
  SmallVector<Edge, 2> target_edges_;
  SmallVector<const TensorImpl*, 2> callers_seeds_;
  std::vector<Wanted> wanted_;
  std::vector<Ready> heap_;
  uint64_t order_ = 0;
  std::deque<size_t> leaves_;
  variable_list results_;
  uint32_t result_writes_ = 0;  ///< visit::writes_to(results_)
  std::vector<NodePtr> consumed_;  ///< whose saved values are freed at the end
  std::vector<std::function<void()>> callbacks_;
  std::unordered_map<const void*, std::shared_ptr<void>> states_by_key_;
  std::map<AutogradMeta*, Before> journal_;
};

}  // namespace grapnel
