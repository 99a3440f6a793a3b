/// Running a graph, op by op.
#include "grapnel/capture/graph.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/defs/join.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

using capture::kNone;

void Graph::set_constant(std::string_view name, Tensor value) {
  for (Id id = 0; id < values_.size(); ++id) {
    Value& v = values_[id];
    if ((!v.constant.defined() && !v.missing) || name_of(id) != name) continue;
    check(value.defined() && value.dtype() == v.dtype && value.shape() == v.sizes,
          "Graph::set_constant: ", name, " is ", v.dtype, v.sizes, ", got ",
          value.defined() ? grapnel::str(value.dtype(), value.shape()) : "an undefined tensor",
          ".");
    v.constant = std::move(value);
    v.missing = false;
    return;
  }
  fail("Graph::set_constant: the graph has no constant \"", name, "\":\n", str());
}

namespace {

/// Of one run: what the names stand for by now.
class Running {
 public:
  Running(const std::vector<Graph::Value>& values) : values_(values), have_(values.size()) {}

  Tensor& operator[](Graph::Id id) { return have_[id]; }
  void set(Graph::Id id, const Tensor& t, std::string_view op) {
    const Graph::Value& v = values_[id];
    check(t.dtype() == v.dtype && t.dim() == v.sizes.size(), "Graph::run: ", op, " gives ",
          t.dtype(), t.shape(), ", and the graph says ", v.dtype, v.sizes, ".");
    have_[id] = t;
  }

 private:
  const std::vector<Graph::Value>& values_;
  std::vector<Tensor> have_;
};

/// cat keeps the sizes of what it joins for its gradient only; those of now will do.
std::vector<std::max_align_t> with_sizes_of(const Graph::Instruction& i,
                                            const std::vector<const Tensor*>& inputs) {
  std::vector<std::max_align_t> attrs = i.attrs;
  auto& cat = *reinterpret_cast<CatAttrs*>(attrs.data());
  const size_t count = std::min(inputs.size(), static_cast<size_t>(cat.sizes.size()));
  for (size_t k = 0; k < count; ++k)
    if (inputs[k]->defined() && cat.dim >= 0 && cat.dim < inputs[k]->dim())
      cat.sizes[static_cast<int>(k)] = inputs[k]->size(cat.dim);
  return attrs;
}

}  // namespace

std::vector<Tensor> Graph::run(const std::vector<Tensor>& inputs) const {
  check(inputs.size() == inputs_.size(), "Graph::run: got ", inputs.size(), " inputs, expected ",
        inputs_.size(), ".");
  Running have(values_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i].dtype() == values_[inputs_[i]].dtype &&
              inputs[i].dim() == values_[inputs_[i]].sizes.size(),
          "Graph::run: input ", i, " is ", inputs[i].dtype(), inputs[i].shape(), ", expected ",
          values_[inputs_[i]].dtype, values_[inputs_[i]].sizes, ".");
    have[inputs_[i]] = inputs[i];
  }
  for (Id id = 0; id < values_.size(); ++id) {
    const Value& v = values_[id];
    check(!v.missing, "Graph::run: the values of constant ", name_of(id), ", ", v.dtype, v.sizes,
          ", are not known: the text of a graph does not hold them.\nGive it some with "
          "set_constant(\"",
          name_of(id), "\", tensor), or make it an input of the traced function.");
    if (v.constant.defined()) have[id] = v.constant;
    if (v.number) have[id] = wrap_number(*v.number);
    if (v.fresh) have[id] = empty(v.sizes, v.dtype);
  }
  const Tensor none;
  for (const Instruction& i : instructions_) {
    std::vector<const Tensor*> pointers;
    for (Id id : i.inputs) pointers.push_back(id == kNone ? &none : &have[id]);
    const void* attrs = i.attrs.empty() ? nullptr : i.attrs.data();
    if (i.inplace) {
      apply_inplace(*i.op, pointers, attrs);
    } else if (i.op->effect) {
      std::vector<Tensor> out;
      for (Id id : i.outputs)
        out.push_back(id == kNone ? Tensor() : empty(values_[id].sizes, values_[id].dtype));
      evaluator_of(Device()).run(*i.op, pointers, attrs, out);
      for (size_t k = 0; k < out.size(); ++k)
        if (i.outputs[k] != kNone) have[i.outputs[k]] = out[k];
    } else {
      std::vector<std::max_align_t> sized;
      if (i.op == &op_of<Cat>) sized = with_sizes_of(i, pointers), attrs = sized.data();
      Outputs out = apply_all(*i.op, pointers, attrs);
      check(out.size() == i.outputs.size(), "Graph::run: ", i.op->name, " has ", out.size(),
            " results, and the graph names ", i.outputs.size(), ".");
      for (size_t k = 0; k < out.size(); ++k) have.set(i.outputs[k], out[k], i.op->name);
    }
  }
  std::vector<Tensor> results;
  for (Id id : outputs_) results.push_back(id == kNone ? Tensor() : have[id]);
  return results;
}

}  // namespace grapnel
