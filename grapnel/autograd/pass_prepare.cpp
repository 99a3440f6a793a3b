/// Preparing a pass: from the roots to all nodes that will be visited.
#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/pass.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

void Pass::seed() {
  check(request_.roots.size() == request_.grad_roots.size(), "backward: ", request_.roots.size(),
        " tensors but ", request_.grad_roots.size(), " gradients for them.");
  SmallVector<Edge, 2> edges;
  Grads seeds;
  for (size_t i = 0; i < request_.roots.size(); ++i) {
    const Tensor& root = request_.roots[i];
    check(root.defined(), "backward: tensor ", i, " is undefined.");
    check(tape::tracks(root), "backward: tensor ", i,
          " does not require grad and has no history, so there is nothing to differentiate.");
    edges.push_back(gradient_edge(root));
    seeds.push_back(seed_for(root, request_.grad_roots[i], i));
    root_nodes_.push_back(edges.back().node);
  }
  add_targets();
  for (const Edge& edge : edges) walk(edge.node.get());
  if (request_.inputs) collect_wanted();
  if (!request_.allow_unused)
    for (size_t i = 0; i < target_edges_.size(); ++i)
      if (!states_[discover(target_edges_[i].node.get())].walked) refuse_unused(i);
  for (size_t i = 0; i < edges.size(); ++i) {
    State& s = states_[discover(edges[i].node.get())];
    arrive(s, edges[i].slot, seeds[i]);
  }
  for (const Edge& edge : edges) {
    const size_t index = discover(edge.node.get());
    State& s = states_[index];
    // A root that another root leads to waits for it; a root given twice is visited once. A single
    // one is always visited, so that its hooks see the seed even if none of `inputs` is reached.
    if (s.waiting_for == 0 && (s.execute || s.target || edges.size() == 1)) {
      s.waiting_for = -1;
      make_ready(index);
    }
  }
}

Tensor Pass::seed_for(const Tensor& root, const Tensor& given, size_t i) {
  if (!given.defined()) {
    check(root.numel() == 1, "backward: tensor ", i, " has shape ", root.shape(),
          "; a gradient can be made up only for one element.\n"
          "Pass one of the same shape, or reduce to a scalar first (sum, mean).");
    return ones_like(root);
  }
  check(given.shape() == root.shape(), "backward: the gradient for tensor ", i, " has shape ",
        given.shape(), ", expected ", root.shape(), ".");
  check(is_floating(given.dtype()), "backward: the gradient for tensor ", i, " has type ",
        given.dtype(), ", expected ", root.dtype(), ".");
  check(given.device() == root.device(), "backward: the gradient for tensor ", i, " is on ",
        given.device(), ", expected ", root.device(), ".\nMove it: gradient.to(tensor.device()).");
  callers_seeds_.push_back(given.impl_ptr());
  return given.dtype() == root.dtype() ? given : given.to(root.dtype());
}

void Pass::add_targets() {
  if (!request_.inputs) return;
  check(!request_.inputs->empty(), request_.accumulate ? "backward" : "grad",
        ": the list of inputs is empty.\nLeave it out to differentiate all leaves.");
  for (const Tensor& input : *request_.inputs) {
    check(input.defined() && tape::tracks(input), request_.accumulate ? "backward" : "grad",
          ": one of the inputs does not require grad.");
    target_edges_.push_back(gradient_edge(input));
    const size_t index = discover(target_edges_.back().node.get());
    states_[index].target = true;
  }
}

/// Counts how many edges lead to each node, and finds out which nodes have to run.
void Pass::walk(Node* root) {
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

void Pass::refuse_unused(size_t input) const {
  const Tensor& t = (*request_.inputs)[input];
  for (const State& s : states_)
    if (s.walked && s.node->is_accumulate()) {
      const auto& node = static_cast<const AccumulateGrad&>(*s.node);
      if (node.leaf().is_same(t)) node.check_leaf();
    }
  fail("grad: input ", input,
       " was not used to compute the outputs.\nPass allow_unused = true to get an undefined "
       "gradient for it.");
}

std::unordered_set<const TensorImpl*> Pass::leaves() const {
  std::unordered_set<const TensorImpl*> out;
  for (const State& s : states_)
    if (s.node->is_accumulate() && will_run(s.node))
      out.insert(static_cast<const AccumulateGrad*>(s.node)->leaf().impl_ptr());
  return out;
}

void Pass::collect_wanted() {
  results_.resize(request_.accumulate ? 0 : request_.inputs->size());
  for (size_t i = 0; i < target_edges_.size(); ++i) {
    const Edge& edge = target_edges_[i];
    const size_t index = discover(edge.node.get());
    if (!request_.accumulate) {
      wanted_.push_back({index, edge.slot, i, {}});
    } else if (!edge.node->is_accumulate()) {
      AutogradMeta& meta = *find_meta((*request_.inputs)[i]);
      if (!meta.retains_grad)
        wanted_.push_back({index, edge.slot, 0, IntrusivePtr<AutogradMeta>(&meta)});
    }
  }
}

}  // namespace grapnel
