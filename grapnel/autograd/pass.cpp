#include "grapnel/autograd/pass.h"

#include <algorithm>
#include <atomic>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/anomaly.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/pass_failure.h"
#include "grapnel/autograd/visit.h"
#include "grapnel/base/interrupt.h"
#include "grapnel/base/place.h"
#include "grapnel/base/short_name.h"
#include "grapnel/base/source_site.h"
#include "grapnel/base/warn.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/compiled_args.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace {
std::atomic<uint64_t> pass_counter{0};
}  // namespace

Pass::Pass(const BackwardRequest& request)
    : request_(request),
      outer_(this_context.pass),
      id_(++pass_counter),
      depth_(outer_ ? outer_->depth_ + 1 : 0),
      strong_(this_context.strong_backward),
      check_nan_(AnomalyMode::should_check_nan()) {}

variable_list Pass::run() {
  struct Enter {
    Pass* const outer;
    explicit Enter(Pass* p) : outer(std::exchange(this_context.pass, p)) {}
    ~Enter() { this_context.pass = outer; }
  } enter(this);
  AutoGradMode mode(request_.create_graph);
  const Autocast as_recorded(kFloat32);  // See Note [What autocast casts] in ops/autocast.h.
  // What runs below is the user's (hooks, callbacks), or has the place of the node whose formula it
  // is.
  const base::HookCodeScope user;
  try {
    // Inside a recording a runner adds nothing but its options.
    if (engine::PassRunner* const runner = this_context.pass_runner)
      runner->run([this] { walk_graph(); });
    else walk_graph();
    for (size_t i = 0; i < callbacks_.size(); ++i) {
      const auto callback = std::move(callbacks_[i]);
      record::before_user_code();
      callback();
    }
    if (!results_.empty()) check_results();
  } catch (...) {
    report_anomaly();
    roll_back();
    engine::tell_failure_listeners();
    throw;
  }
  return std::move(results_);
}

void Pass::walk_graph() {
  struct Walking {
    Walking() { ++this_context.walks; }
    ~Walking() { --this_context.walks; }
  } walking;
  // Asked once: a walk that is recorded calls hooks and nodes through what they declare, and frees
  // what nodes hold only at its end.
  recording_ = record::active();
  seed();
  while (pop_and_visit()) base::between_pieces();
  // A recorded walk that fails has freed nothing; one that succeeds frees before the graph runs, so
  // that what only the graph needs is never stored.
  for (const NodePtr& node : consumed_) node->release_saved();
  consumed_.clear();
}

bool Pass::pop_and_visit() {
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

void Pass::visit_node(size_t index) {
  Node& node = *states_[index].node;
  Grads grads = std::move(states_[index].buffers);
  if (visit::writes_to(grads) != states_[index].writes) [[unlikely]]
    fail_written(node);
  if (grads.empty()) grads.resize(node.num_inputs());
  current = &node;
  told_.node = &node;
  const HookTable* const hooks = node.hooks();
  // Nobody is shown a gradient that does not fit the leaf; accumulate() will look again.
  if (node.is_accumulate() && static_cast<const AccumulateGrad&>(node).is_outdated() &&
      grads[0].defined()) [[unlikely]]
    static_cast<const AccumulateGrad&>(node).check_leaf();
  if (hooks) visit::run_tensor_hooks(*hooks, grads, told_, recording_);
  if (!wanted_.empty()) take_wanted(index, grads);
  if (!states_[index].execute) return;
  if (const HookTable* table = node.hooks(HookKind::node_pre))
    visit::run_pre_hooks(node, *table, grads, recording_);

  Grads outputs;
  if (node.is_accumulate()) {
    static_cast<AccumulateGrad&>(node).accumulate(grads, is_callers_seed(grads[0]), recording_);
  } else {
    outputs = run_formula(node, grads);
    visit::validate_outputs(node, outputs);
  }
  if (const HookTable* table = node.hooks(HookKind::node_post))
    visit::run_post_hooks(node, *table, outputs, grads, recording_);
  if (!request_.keep_graph) {
    if (recording_) consumed_.emplace_back(&node);
    else node.release_saved();
  }
  if (check_nan_) [[unlikely]]
    check_outputs(node, outputs);
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

Grads Pass::run_formula(Node& node, const Grads& grads) {
  for (Pass* p = outer_; p; p = p->outer_)
    if (p->in_formula && p->current == &node) [[unlikely]]
      fail("backward: the node of ", node.name(), " (called at ", node.where(),
           ") is already running in an outer pass on this thread; a pass started inside it may not "
           "run it again.");
  in_formula = &grads;
  struct Leave {
    const Grads*& given;
    ~Leave() { given = nullptr; }
  } leave{in_formula};
  try {
    if (!node.is_user_code()) {
      base::CallSiteScope library(node.site());
      return node.apply_to(grads);
    }
    record::before_user_code();
    const uint32_t writes = visit::writes_to(grads);
    Grads outputs;
    if (!recording_) {
      outputs = node.apply(grads);
    } else {
      SwapSavedVariables saved;
      outputs = node.apply_with_saved(grads, saved);
    }
    if (visit::writes_to(grads) != writes) [[unlikely]]
      fail("the backward of ", node.name(), " (called at ", node.where(),
           ") changed a gradient that it was given in place. Its memory may be that of other "
           "gradients; return a new tensor instead.");
    return outputs;
  } catch (...) {
    note_formula(node);
    throw;
  }
}

/// Tells the exception in whose backward it was thrown.
void Pass::note_formula(const Node& node) const {
  base::note(str("in the backward of ", base::short_type_name(node.name()), ", called at ",
                 node.where(), ", node ", nodes_.find(&node) + 1, " of ", states_.size()));
}

void Pass::check_outputs(const Node& node, const Grads& outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Edge& edge = node.next_edge(i);
    std::string what;
    if (edge && edge.node->is_accumulate())
      what = "the gradient of " +
             anomaly::describe_leaf(static_cast<const AccumulateGrad&>(*edge.node).leaf());
    for (const Wanted& w : wanted_)
      if (edge && !w.retained && states_[w.state].node == edge.node.get() && w.slot == edge.slot)
        what = str("result ", w.result, " of grad()");
    anomaly::check_node_result(outputs[i], node, i, std::move(what));
  }
}

void Pass::arrive(State& s, uint32_t slot, Tensor grad) {
  if (s.buffers.empty()) s.buffers.resize(s.node->num_inputs());
  if (!grad.defined()) return;
  Tensor& buffer = s.buffers[slot];
  s.writes -= visit::writes_to(buffer);
  if (!buffer.defined()) {
    buffer = std::move(grad);
  } else if (!request_.create_graph && buffer.is_contiguous() && buffer.dtype() == grad.dtype() &&
             is_sole_owner(buffer)) {
    buffer.add_(grad);
  } else {
    buffer = buffer + grad;
  }
  s.writes += visit::writes_to(buffer);
}

const Grads* visit::grads_of_formula() {
  return this_context.pass ? this_context.pass->in_formula : nullptr;
}

void Pass::fail_written(const Node& node) const {
  const std::string where =
      node.is_accumulate() ? anomaly::describe_leaf(static_cast<const AccumulateGrad&>(node).leaf())
                           : str(node.name(), " (called at ", node.where(), ")");
  fail(
      "backward: a gradient on its way to ", where,
      " was changed in place before it got there.\nLikely causes: a hook wrote to a gradient that "
      "it or another one had kept, or the memory of a seed, or of what a hook returned, is that of "
      "some grad() which was added to. Pass, keep or return a clone().");
}

void Pass::check_results() const {
  if (!request_.allow_unused)
    for (size_t i = 0; i < results_.size(); ++i)
      if (!results_[i].defined()) refuse_unused(i);
  check(visit::writes_to(results_) == result_writes_,
        "grad: a result was changed in place before the pass had ended, by a hook that had kept "
        "it.\nKeep a clone() instead.");
}

void Pass::make_ready(size_t index) {
  const Node* node = states_[index].node;
  if (node->is_accumulate()) {
    leaves_.push_back(index);
  } else {
    heap_.push_back({node->sequence_nr(), ~order_++, index});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

void Pass::take_wanted(size_t index, const Grads& grads) {
  for (const Wanted& w : wanted_) {
    if (w.state != index) continue;
    if (w.retained) visit::write_retained(*w.retained, grads[w.slot]);
    else {
      results_[w.result] = grads[w.slot];
      result_writes_ += visit::writes_to(grads[w.slot]);
    }
    if (check_nan_ && !w.retained) [[unlikely]]
      anomaly::check_result(results_[w.result], w.result);
  }
}

bool Pass::is_callers_seed(const Tensor& grad) const {
  return grad.defined() && std::find(callers_seeds_.begin(), callers_seeds_.end(),
                                     grad.impl_ptr()) != callers_seeds_.end();
}

void Pass::journal(const Tensor& leaf) {
  if (!strong_) return;
  AutogradMeta& meta = *find_meta(leaf);
  const auto [entry, fresh] = journal_.try_emplace(&meta);
  if (!fresh) return;
  Before& before = entry->second;
  before.tensor = IntrusivePtr<AutogradMeta>(&meta);
  std::lock_guard guard(meta.grad_mutex);
  before.grad = meta.grad;
  if (before.grad.defined()) {
    NoGradGuard no_grad;
    before.values = before.grad.detach().clone();
  }
}

// Retained gradients are replaced, never added to in place, so the old one is kept as it is.
void Pass::journal_retained(AutogradMeta& tensor) {
  if (!strong_ && request_.allow_unused) return;
  const auto [entry, fresh] = journal_.try_emplace(&tensor);
  if (fresh) entry->second = {IntrusivePtr<AutogradMeta>(&tensor), tensor.grad, {}};
}

void Pass::roll_back() {
  NoGradGuard no_grad;
  for (auto& [meta, before] : journal_) {
    auto& [tensor, grad, values] = before;
    // Values that were never computed belong to a recording that is given up, and the write they
    // were kept for with it.
    if (values.defined() && !record::is_lost(values)) grad.detach().copy_(values);
    if (!tensor->alive.load(std::memory_order_acquire)) continue;
    std::lock_guard guard(tensor->grad_mutex);
    std::swap(tensor->grad, grad);
  }
}

/// Under anomaly mode, says where the node that was being visited came from. The exception itself
/// stays as it is.
void Pass::report_anomaly() const {
  if (AnomalyMode::is_enabled() && current)
    base::warn(str("backward failed in ", current->name(), ".\n", anomaly::trace(*current)));
}

}  // namespace grapnel
