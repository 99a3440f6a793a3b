#include "grapnel/capture/graph_reader.h"

#include <algorithm>

#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/list.h"

namespace grapnel {

using namespace capture;

/// Gives the values of a trace their places in a graph, and says in instructions what the trace says
/// by slots: who shares memory with whom.
class GraphReader {
 public:
  GraphReader(const Trace& trace, const ReadOptions& options)
      : trace_(trace), options_(options), ids_(trace.values.size(), kNone) {
    g_.calls_.hooks = trace.hooks;
  }

  void input(const Tensor& t, ValueId value) {
    if (!t.defined()) return g_.inputs_.push_back(kNone);
    const Graph::Id id = add({.dtype = t.dtype(), .device = t.device(), .sizes = t.shape()});
    // The first of several that are the same tensor stands for all of them.
    if (value != kNone && ids_[value] == kNone) ids_[value] = id;
    g_.inputs_.push_back(id);
  }
  void input(ValueId value) { g_.inputs_.push_back(ids_[value] = add(typed(value))); }
  void lifted_inputs() {
    const size_t first = g_.inputs_.size();
    for (size_t i = 0; i < options_.lifted_numbers; ++i)
      g_.inputs_.push_back(add({.dtype = kFloat64, .lifted = true}));
    for (size_t i = options_.since.lifted_numbers; i < trace_.lifted_numbers.size(); ++i) {
      const auto [value, place] = trace_.lifted_numbers[i];
      ids_[value] = g_.inputs_[first + place];
    }
  }

  void read_calls() {
    for (size_t i = options_.since.calls; i < trace_.calls.size(); ++i) {
      const Instruction& call = trace_.calls[i];
      SmallVector<Graph::Id, 8> in, out;
      for (const ValueId v : trace_.inputs_of(call)) in.push_back(operand(v));
      for (const ValueId v : trace_.outputs_of(call)) out.push_back(result(v));
      append(call, {in.data(), in.size()}, {out.data(), out.size()}, trace_.attrs_of(call));
      if (call.op->effect || call.op->opaque) g_.calls_.kept = trace_.kept;
    }
  }

  void output(ValueId value) { g_.outputs_.push_back(operand(value)); }
  void output(const Tensor& t, const std::vector<Tensor>& inputs, SlotId slot, ValueId value) {
    if (!t.defined()) return g_.outputs_.push_back(kNone);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (t.is_same(inputs[i])) return g_.outputs_.push_back(g_.inputs_[i]);
    if (value != kNone) return output(value);
    Graph::Value made{.dtype = t.dtype(), .device = t.device(), .sizes = t.shape()};
    const TensorImpl& impl = t.impl();
    if (const ValueId other = neighbour(slot); other != kNone)
      return g_.outputs_.push_back(
          alias(other, std::move(made), {impl.sizes, impl.strides, impl.offset}));
    if (slot == kNone && impl.storage->pending()) made.fresh = true;
    else if (slot != kNone && !trace_.slots[slot].outside) made.missing = true;
    else made.constant = t;
    g_.outputs_.push_back(add(std::move(made)));
  }

  Graph done() {
    g_.order_values();
    return std::move(g_);
  }

 private:
  Graph::Id add(Graph::Value value) {
    g_.values_.push_back(std::move(value));
    return static_cast<Graph::Id>(g_.values_.size() - 1);
  }
  Graph::Id known(ValueId v) const { return v == kNone ? kNone : ids_[v]; }
  Graph::Value typed(ValueId v) const {
    const Value& from = trace_.values[v];
    return {.dtype = from.dtype,
            .device = from.number ? Device() : trace_.slots[from.slot].device,
            .sizes = Shape(trace_.sizes_of(from))};
  }
  Geometry geometry_of(ValueId v) const {
    const Value& from = trace_.values[v];
    return {Shape(trace_.sizes_of(from)), Shape(trace_.strides_of(from)), trace_.offset_of(from)};
  }

  Graph::Id result(ValueId v) {
    return v == kNone || ids_[v] != kNone ? known(v) : ids_[v] = add(typed(v));
  }
  Graph::Id operand(ValueId v) {
    if (v == kNone || ids_[v] != kNone) return known(v);
    const Value& from = trace_.values[v];
    Graph::Value made = typed(v);
    if (from.number) {
      made.number = scalar_of(from.dtype, trace_.numbers[from.slot]);
      return ids_[v] = add(std::move(made));
    }
    if (const ValueId other = neighbour(from.slot); other != kNone)
      return ids_[v] = alias(other, std::move(made), geometry_of(v));
    const Slot& slot = trace_.slots[from.slot];
    ValueId oldest = v;
    for (ValueId other = slot.first; other != kNone; other = trace_.values[other].next)
      oldest = other;
    if (slot.outside) {
      const Geometry geometry = geometry_of(v);
      const StoragePtr storage =
          options_.borrows ? StoragePtr(slot.storage) : trace_.held[from.slot];
      made.constant = Tensor(TensorImpl::create(storage, from.dtype, geometry.sizes,
                                                geometry.strides, geometry.offset));
    } else if (oldest < options_.since.values) {
      made.missing = true;
    } else {
      made.fresh = true;
      if (!from.linear) not_the_same();
    }
    return ids_[v] = add(std::move(made));
  }

  /// A value over the slot that the graph computes or is given.
  ValueId neighbour(SlotId slot) const {
    if (slot == kNone) return kNone;
    for (ValueId v = trace_.slots[slot].first; v != kNone; v = trace_.values[v].next)
      if (ids_[v] != kNone && !(trace_.slots[slot].outside && !is_input(ids_[v]))) return v;
    return kNone;
  }
  bool is_input(Graph::Id id) const {
    return std::find(g_.inputs_.begin(), g_.inputs_.end(), id) != g_.inputs_.end();
  }
  /// Another view of what is there already, to which no recorded op leads.
  Graph::Id alias(ValueId other, Graph::Value made, const Geometry& geometry) {
    not_the_same();
    const StridedAttrs attrs{geometry_of(other), geometry};
    const Graph::Id base = ids_[other], view = add(std::move(made));
    append({.op = &op_of<AsStrided>}, {&base, 1}, {&view, 1}, &attrs);
    return view;
  }
  void not_the_same() {
    if (options_.not_the_same)
      *options_.not_the_same = "it looks at memory in a way that no recorded op leads to";
  }

  void append(Instruction call, std::span<const Graph::Id> in, std::span<const Graph::Id> out,
              const void* attrs) {
    call.attrs = g_.calls_.add_attrs(*call.op, attrs);
    call.key_end = 0;
    call.place = kNone;
    g_.calls_.append(call, in, out);
  }

  const Trace& trace_;
  const ReadOptions& options_;
  std::vector<Graph::Id> ids_;  ///< of the trace's values
  Graph g_;
};

namespace capture {

Graph graph_of(const record::Recorder& recorder, const std::vector<Tensor>& inputs,
               const std::vector<Tensor>& outputs, const ReadOptions& options) {
  GraphReader reader(recorder.trace(), options);
  auto value_of = [&](const Tensor& t) { return t.defined() ? recorder.find(t) : kNone; };
  for (const Tensor& t : inputs) reader.input(t, value_of(t));
  reader.lifted_inputs();
  reader.read_calls();
  for (const Tensor& t : outputs)
    reader.output(t, inputs, t.defined() ? recorder.find_slot(t) : kNone, value_of(t));
  return reader.done();
}

Graph graph_of(const Trace& trace, const std::vector<ValueId>& inputs,
               const std::vector<ValueId>& outputs) {
  const ReadOptions whole;
  GraphReader reader(trace, whole);
  for (const ValueId v : inputs) reader.input(v);
  reader.read_calls();
  for (const ValueId v : outputs) reader.output(v);
  return reader.done();
}

Graph graph_of(const Trace& trace) {
  const ReadOptions whole;
  GraphReader reader(trace, whole);
  reader.read_calls();
  for (const Slot& s : trace.slots)
    if (s.live && s.first != kNone) reader.output(s.first);
  return reader.done();
}

}  // namespace capture
}  // namespace grapnel
