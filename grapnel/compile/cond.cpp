#include "grapnel/compile/cond.h"

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/meta.h"
#include "grapnel/autograd/saved_variable.h"
#include "grapnel/base/place.h"
#include "grapnel/compile/trace.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/defs/calls.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/record.h"

namespace grapnel::compiler {

namespace {

/// What a recording keeps of both: what they compute, and the functions, which know their gradients.
struct Branches final : ProgramCall {
  Branches(Branch first, Branch second, Graph one, Graph other)
      : if_true(std::move(first)),
        if_false(std::move(second)),
        true_graph(std::move(one)),
        false_graph(std::move(other)) {}
  void run(Inputs inputs, std::span<Tensor> out) const override;

  Branch if_true, if_false;
  Graph true_graph, false_graph;
};

/// A tensor that looks like `t`, which may be a plain number, over memory like this.
Tensor like(const Tensor& t, StoragePtr storage) {
  const TensorImpl& impl = t.impl();
  return Tensor(
      TensorImpl::create(std::move(storage), impl.dtype, impl.sizes, impl.strides, impl.offset));
}

void Branches::run(Inputs inputs, std::span<Tensor> out) const {
  NoGradGuard no_grad;
  variable_list operands;
  for (const Tensor* t : inputs.subspan(1)) operands.push_back(like(*t, t->impl().storage));
  const bool holds = inputs[0]->item().to_bool();
  const variable_list results = (holds ? true_graph : false_graph).run(operands);
  for (size_t i = 0; i < out.size(); ++i) copy_elements(out[i], results[i]);
}

/// What a branch computes, found by tracing it; refuses branches that do more than that.
Graph graph_of(const Branch& branch, const variable_list& operands, const char* which) {
  variable_list arguments;
  for (const Tensor& t : operands) {
    const Storage& memory = *t.impl().storage;
    arguments.push_back(like(t, Storage::create_lazy(memory.bytes(), memory.device())));
  }
  const uint64_t hooks_before = hooks_registered();
  NoGradGuard no_grad;
  Graph graph = trace_list(branch, arguments);
  check(hooks_registered() == hooks_before, "cond: the ", which,
        " branch registers a hook, which would hold for both branches.\nRegister it outside.");
  for (const Graph::Instruction& i : graph.instructions()) {
    check(!i.op->random, "cond: the ", which, " branch draws random numbers (", i.op->name,
          "), and when it does would depend on the mode.\nDraw them outside and pass them in.");
    if (i.inplace) {
      const Graph::Id target = graph.calls().inputs_of(i)[0];
      const bool argument =
          std::find(graph.inputs().begin(), graph.inputs().end(), target) != graph.inputs().end();
      check(!graph.values()[target].constant.defined() && !argument, "cond: the ", which,
            " branch writes to a tensor that it did not make (", i.op->name,
            "_).\nReturn a new tensor instead.");
    }
  }
  for (const Graph::Id id : graph.outputs())
    check(id != capture::kNone, "cond: the ", which, " branch returns an undefined tensor.");
  return graph;
}
std::vector<TensorSpec> results_of(const Graph& graph) {
  std::vector<TensorSpec> specs;
  for (const Graph::Id id : graph.outputs())
    specs.push_back(
        {graph.values()[id].sizes, graph.values()[id].dtype, graph.values()[id].device});
  return specs;
}

/// Gradients of a branch's operands: a function of the operands and of the gradients of its
/// results.
Branch gradient_of(Branch branch, size_t operands) {
  return [branch = std::move(branch), operands](const variable_list& x) {
    const bool again = GradMode::is_enabled();
    variable_list leaves, seeds(x.begin() + static_cast<ptrdiff_t>(operands), x.end()), wanted;
    EnableGradGuard grad_on;
    for (size_t i = 0; i < operands; ++i) {
      Tensor t = again && x[i].requires_grad() ? x[i] : x[i].detach();
      if (is_floating(t.dtype()) && !t.requires_grad()) t.requires_grad_();
      leaves.push_back(t);
      if (is_floating(t.dtype())) wanted.push_back(t);
    }
    variable_list outputs, output_seeds;
    const variable_list results = branch(leaves);
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i].requires_grad())
        outputs.push_back(results[i]), output_seeds.push_back(seeds[i]);
    variable_list grads(wanted.size());
    if (!outputs.empty()) grads = autograd::grad(outputs, wanted, output_seeds, {}, again, true);
    variable_list all;
    size_t next = 0;
    for (const Tensor& t : leaves) {
      const Tensor g = is_floating(t.dtype()) ? grads[next++] : Tensor();
      all.push_back(g.defined() ? g : zeros_like(t.detach()));
    }
    return all;
  };
}

class CondNode final : public Node {
 public:
  CondNode(std::shared_ptr<const Branches> branches, const Tensor& pred,
           const variable_list& operands)
      : branches_(std::move(branches)), pred_(pred, Edge{}) {
    for (const Tensor& t : operands) {
      add_next_edge(tape::tracks(t) ? gradient_edge(t) : Edge{});
      saved_.emplace_back(t, next_edges().back());
    }
  }
  std::string name() const override { return "cond"; }
  Grads apply(Grads grads) override {
    variable_list operands;
    for (const SavedVariable& s : saved_) operands.push_back(s.unpack(*this));
    const size_t count = operands.size();
    for (size_t i = 0; i < grads.size(); ++i)
      operands.push_back(grads[i].defined() ? grads[i] : zeros(slot(i).sizes, slot(i).options()));
    const variable_list result = cond(pred_.unpack(*this), gradient_of(branches_->if_true, count),
                                      gradient_of(branches_->if_false, count), operands);
    Grads out;
    for (size_t i = 0; i < count; ++i) out.push_back(next_edge(i) ? result[i] : Tensor());
    return out;
  }
  void release_saved() override {
    pred_.release();
    for (SavedVariable& s : saved_) s.release();
  }

 private:
  std::shared_ptr<const Branches> branches_;
  SavedVariable pred_;
  std::vector<SavedVariable> saved_;
};

}  // namespace

variable_list cond(const Tensor& pred, Branch if_true, Branch if_false,
                   const variable_list& operands) {
  check(pred.numel() == 1, "cond: the condition has ", pred.numel(), " elements, expected one.");
  // A condition whose value is there decides at once, and only one branch is ever called.
  if (!record::active()) return (pred.item().to_bool() ? if_true : if_false)(operands);

  Graph first = graph_of(if_true, operands, "first"),
        second = graph_of(if_false, operands, "second");
  const auto specs = results_of(first), others = results_of(second);
  check(specs.size() == others.size(), "cond: one branch returns ", specs.size(),
        " tensors and the other ", others.size(), ".");
  for (size_t i = 0; i < specs.size(); ++i)
    check(specs[i].sizes == others[i].sizes && specs[i].dtype == others[i].dtype,
          "cond: one branch returns ", specs[i].dtype, specs[i].sizes, " and the other ",
          others[i].dtype, others[i].sizes, ".");

  const auto branches = std::make_shared<const Branches>(std::move(if_true), std::move(if_false),
                                                         std::move(first), std::move(second));
  SmallVector<const Tensor*, 4> inputs{&pred};
  bool tracked = false;
  for (const Tensor& t : operands) {
    inputs.push_back(&t);
    tracked |= GradMode::is_enabled() && tape::tracks(t);
  }
  variable_list results;
  for (const TensorSpec& spec : specs) results.push_back(evaluator(spec.device).empty(spec));
  const Cond::Attrs attrs{branches.get()};
  evaluator(kCPU).run(op_of<Cond>, {inputs.data(), inputs.size()}, &attrs, results);
  record::keep(branches);
  if (tracked) {
    const auto node = IntrusivePtr<CondNode>::adopt(new CondNode(branches, pred, operands));
    node->set_site(base::users_call_site());
    for (Tensor& t : results) set_history(t, node, node->add_slot(t));
  }
  return results;
}

}  // namespace grapnel::compiler
