/// Running a graph, op by op.
#include <utility>

#include "grapnel/base/context.h"
#include "grapnel/base/source_site.h"
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
    if (!v.is_constant() || name_of(id) != name) continue;
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
  explicit Running(const std::vector<Graph::Value>& values) : values_(values) {
    have_.resize(values.size());
  }

  Tensor& operator[](Graph::Id id) { return have_[id]; }
  void set(Graph::Id id, Tensor t, std::string_view op) {
    const Graph::Value& v = values_[id];
    check(t.dtype() == v.dtype && t.dim() == v.sizes.size(), "Graph::run: ", op, " gives ",
          t.dtype(), t.shape(), ", and the graph says ", v.dtype, v.sizes, ".");
    have_[id] = std::move(t);
  }

 private:
  const std::vector<Graph::Value>& values_;
  SmallVector<Tensor, 16> have_;
};

/// cat keeps the sizes of what it joins for its gradient only; those of now will do.
CatAttrs with_sizes_of(const void* recorded, Inputs inputs) {
  CatAttrs cat = *static_cast<const CatAttrs*>(recorded);
  const size_t count = std::min(inputs.size(), static_cast<size_t>(cat.sizes.size()));
  for (size_t k = 0; k < count; ++k)
    if (inputs[k]->defined() && cat.dim >= 0 && cat.dim < inputs[k]->dim())
      cat.sizes[static_cast<int>(k)] = inputs[k]->size(cat.dim);
  return cat;
}

/// While it lives, functions of the program are given the tensors that are there instead of those that
/// they were recorded with.
class OnOtherTensors {
 public:
  OnOtherTensors() : outer_(std::exchange(this_context.on_other_tensors, true)) {}
  ~OnOtherTensors() { this_context.on_other_tensors = outer_; }
  OnOtherTensors(const OnOtherTensors&) = delete;
  OnOtherTensors& operator=(const OnOtherTensors&) = delete;

 private:
  const bool outer_;
};

}  // namespace

std::vector<Tensor> Graph::run(const std::vector<Tensor>& inputs) const {
  check(inputs.size() == inputs_.size(), "Graph::run: got ", inputs.size(), " inputs, expected ",
        inputs_.size(), ".");
  Running have(values_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Id id = inputs_[i];
    if (id == kNone) continue;
    const Tensor& t = inputs[i];
    const Value& v = values_[id];
    if (!t.defined() || t.dtype() != v.dtype || t.dim() != v.sizes.size())
      fail("Graph::run: input ", i, " is ",
           t.defined() ? grapnel::str(t.dtype(), t.shape()) : "undefined", ", expected ", v.dtype,
           v.sizes, ".");
    have[id] = t;
  }
  for (Id id = 0; id < values_.size(); ++id) {
    const Value& v = values_[id];
    if (v.missing)
      fail("Graph::run: the values of constant ", name_of(id), ", ", v.dtype, v.sizes,
           ", are not known: the text of a graph does not hold them.\nGive it some with "
           "set_constant(\"",
           name_of(id), "\", tensor), or make it an input of the traced function.");
    if (v.constant.defined()) have[id] = v.constant;
    if (v.number) have[id] = wrap_number(*v.number);
    if (v.fresh) have[id] = empty(v.sizes, v.options());
  }
  const Tensor none;
  for (const Instruction& i : calls_.calls) {
    const base::CallSiteScope as_recorded(i.site);
    SmallVector<const Tensor*, 8> pointers;
    for (const Id id : calls_.inputs_of(i)) pointers.push_back(id == kNone ? &none : &have[id]);
    const Inputs in(pointers.data(), pointers.size());
    const auto outputs = calls_.outputs_of(i);
    const void* attrs = calls_.attrs_of(i);
    if (i.inplace) {
      apply_inplace(*i.op, in, attrs);
    } else if (i.op->effect) {
      std::vector<Tensor> out;
      for (const Id id : outputs)
        out.push_back(id == kNone ? Tensor() : empty(values_[id].sizes, values_[id].options()));
      const OnOtherTensors here;
      evaluator_of(kCPU).run(*i.op, in, attrs, out);
      for (size_t k = 0; k < out.size(); ++k)
        if (outputs[k] != kNone) have[outputs[k]] = out[k];
    } else {
      std::optional<CatAttrs> sized;
      if (i.op == &op_of<Cat>) attrs = &sized.emplace(with_sizes_of(attrs, in));
      Outputs out = apply_all(*i.op, in, attrs);
      check(out.size() == outputs.size(), "Graph::run: ", i.op->name, " has ", out.size(),
            " results, and the graph names ", outputs.size(), ".");
      for (size_t k = 0; k < out.size(); ++k) have.set(outputs[k], std::move(out[k]), i.op->name);
    }
  }
  std::vector<Tensor> results;
  results.reserve(outputs_.size());
  for (const Id id : outputs_) results.push_back(id == kNone ? Tensor() : have[id]);
  return results;
}

}  // namespace grapnel
