#include "grapnel/capture/graph.h"

#include <charconv>
#include <ostream>

#include "grapnel/base/source_site.h"
#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/list.h"

namespace grapnel {

using capture::kNone;

namespace {

std::string text_of(double x) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  std::string text(buffer, end);
  // Always recognisable as a floating-point number.
  return text.find_first_of(".eni") == std::string::npos ? text + ".0" : text;
}
std::string text_of(const Scalar& s) {
  if (s.is_bool()) return s.to_bool() ? "true" : "false";
  return s.is_integral() ? std::to_string(s.to_int()) : text_of(s.to_double());
}
std::string text_of(const Shape& s) {
  std::string text = "[";
  for (int i = 0; i < s.size(); ++i) text += (i ? "," : "") + std::to_string(s[i]);
  return text + "]";
}

class AttrText final : public AttrVisitor {
 public:
  std::string text;
  void on(std::string_view name, bool value) override { add(name, value ? "true" : "false"); }
  void on(std::string_view name, int64_t value) override { add(name, std::to_string(value)); }
  void on(std::string_view name, double value) override { add(name, text_of(value)); }
  void on(std::string_view name, DType value) override {
    add(name, std::string(grapnel::name(value)));
  }
  void on(std::string_view name, const Shape& value) override { add(name, text_of(value)); }

 private:
  void add(std::string_view name, const std::string& value) { text += str(", ", name, "=", value); }
};

/// In one line, and without anything that ends a comment.
std::string in_one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\\') out += "\\\\";
    else out += c;
  }
  return out;
}
/// For a text in quotes.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}
bool is_constant(const Graph::Value& v) { return v.constant.defined() || v.missing; }
std::string type_text(const Graph::Value& v) { return str(name(v.dtype), text_of(v.sizes)); }

}  // namespace

const Op* find_op(std::string_view name) {
  for (const Op* op : all_ops())
    if (op->name == name && !op->opaque) return op;
  return nullptr;
}

std::string Graph::name_of(Id id) const {
  // Letters while they last; numbers need no name.
  Id place = 0;
  for (Id i = 0; i < id; ++i) place += !values_[i].number;
  return place < 26 ? std::string(1, static_cast<char>('a' + place)) : grapnel::str("v", place);
}

int64_t Graph::count(std::string_view op) const {
  int64_t n = 0;
  for (const Instruction& i : instructions_) n += i.op->name == op;
  return n;
}

Graph Graph::from_trace(const capture::Trace& trace, const std::vector<capture::ValueId>& inputs,
                        const std::vector<capture::ValueId>& outputs) {
  Graph g;
  std::vector<Id> ids(trace.values.size(), kNone);
  auto add = [&](capture::ValueId v) {
    if (v == kNone) return kNone;
    if (ids[v] != kNone) return ids[v];
    const capture::Value& from = trace.values[v];
    Value value;
    value.dtype = from.dtype;
    value.sizes = Shape(trace.sizes_of(from));
    if (from.number) value.number = capture::scalar_of(from.dtype, trace.numbers[from.slot]);
    ids[v] = static_cast<Id>(g.values_.size());
    g.values_.push_back(std::move(value));
    return ids[v];
  };
  for (const capture::ValueId v : inputs) g.inputs_.push_back(add(v));
  auto lift = [&](capture::ValueId v) {
    if (v == kNone || ids[v] != kNone) return add(v);
    const capture::Value& from = trace.values[v];
    if (from.number) return add(v);
    const Geometry geometry{Shape(trace.sizes_of(from)), Shape(trace.strides_of(from)),
                            trace.offset_of(from)};
    if (!trace.slots[from.slot].outside) {
      // Memory of this graph that no instruction returned: another view of what is there already,
      // or memory still to be filled.
      for (capture::ValueId other = trace.slots[from.slot].first; other != kNone;
           other = trace.values[other].next)
        if (ids[other] != kNone) {
          Instruction alias;
          alias.op = &op_of<AsStrided>;
          alias.attrs.resize((sizeof(StridedAttrs) + sizeof(std::max_align_t) - 1) /
                             sizeof(std::max_align_t));
          const capture::Value& base = trace.values[other];
          new (alias.attrs.data()) StridedAttrs{
              {Shape(trace.sizes_of(base)), Shape(trace.strides_of(base)), trace.offset_of(base)},
              geometry};
          alias.inputs = {ids[other]};
          alias.outputs = {add(v)};
          g.instructions_.push_back(std::move(alias));
          return ids[v];
        }
      const Id fresh = add(v);
      g.values_[fresh].fresh = true;
      return fresh;
    }
    const Id id = add(v);
    g.values_[id].constant = Tensor(TensorImpl::create(
        trace.held[from.slot], from.dtype, geometry.sizes, geometry.strides, geometry.offset));
    return id;
  };
  for (const capture::Instruction& c : trace.calls) {
    Instruction i;
    i.op = c.op;
    i.inplace = c.inplace;
    i.site = c.site;
    if (c.hook != kNone) i.hook = trace.hooks[c.hook];
    const size_t blocks =
        (c.op->attrs_size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
    i.attrs.assign(trace.attrs.begin() + c.attrs,
                   trace.attrs.begin() + c.attrs + static_cast<ptrdiff_t>(blocks));
    for (const capture::ValueId v : trace.inputs_of(c)) i.inputs.push_back(lift(v));
    if (!c.inplace)
      for (const capture::ValueId v : trace.outputs_of(c)) i.outputs.push_back(add(v));
    g.instructions_.push_back(std::move(i));
  }
  for (const capture::ValueId v : outputs) g.outputs_.push_back(lift(v));
  g.kept_ = trace.kept;
  return g;
}

std::string Graph::str(bool sources) const {
  std::string text = "graph(";
  for (size_t i = 0; i < inputs_.size(); ++i)
    text += grapnel::str(i ? ", " : "", name_of(inputs_[i]), ": ", type_text(values_[inputs_[i]]));
  text += ") {\n";
  for (Id id = 0; id < values_.size(); ++id)
    if (is_constant(values_[id]) || values_[id].fresh)
      text += grapnel::str("  ", name_of(id), values_[id].fresh ? " = empty : " : " = constant : ",
                           type_text(values_[id]), "\n");
  auto operand = [&](Id id) {
    return id == kNone          ? std::string("none")
           : values_[id].number ? text_of(*values_[id].number)
                                : name_of(id);
  };
  for (const Instruction& i : instructions_) {
    text += "  ";
    for (size_t k = 0; k < i.outputs.size(); ++k) text += (k ? ", " : "") + operand(i.outputs[k]);
    if (!i.outputs.empty()) text += " = ";
    text += std::string(i.op->name) + (i.inplace ? "_(" : "(");
    for (size_t k = 0; k < i.inputs.size(); ++k) text += (k ? ", " : "") + operand(i.inputs[k]);
    AttrText attrs;
    if (i.op->attrs_size > 0) i.op->visit_attrs(i.attrs.data(), attrs);
    text += (i.inputs.empty() && !attrs.text.empty() ? attrs.text.substr(2) : attrs.text) + ")";
    for (size_t k = 0; k < i.outputs.size(); ++k)
      text += (k ? ", " : " : ") +
              (i.outputs[k] == kNone ? std::string("none") : type_text(values_[i.outputs[k]]));
    if (!i.hook.empty()) text += "  # in " + in_one_line(i.hook);
    if (sources) text += "  # " + in_one_line(base::describe({i.site}));
    text += "\n";
  }
  text += "  return";
  for (size_t i = 0; i < outputs_.size(); ++i) text += (i ? ", " : " ") + operand(outputs_[i]);
  return text + "\n}\n";
}
std::ostream& operator<<(std::ostream& out, const Graph& graph) { return out << graph.str(); }

std::string Graph::dot() const {
  std::string text =
      "digraph grapnel {\n  rankdir=TB;\n  node [shape=box, style=rounded, "
      "fontname=\"sans-serif\"];\n";
  std::string edges;  // after all nodes: one named inside a frame would be drawn inside it
  std::vector<std::string> makers(values_.size());
  for (Id id : inputs_) {
    makers[id] = "in_" + name_of(id);
    text += grapnel::str("  ", makers[id], " [shape=ellipse, label=\"", name_of(id), ": ",
                         type_text(values_[id]), "\"];\n");
  }
  for (Id id = 0; id < values_.size(); ++id)
    if (is_constant(values_[id])) {
      makers[id] = "const_" + name_of(id);
      text += grapnel::str("  ", makers[id], " [shape=ellipse, style=dashed, label=\"", name_of(id),
                           ": ", type_text(values_[id]), "\"];\n");
    }
  for (size_t k = 0; k < instructions_.size(); ++k) {
    const Instruction& i = instructions_[k];
    const std::string node = grapnel::str("op", k);
    const bool special = i.op->effect || i.inplace;
    const std::string& before = k > 0 ? instructions_[k - 1].hook : std::string();
    if (!i.hook.empty() && i.hook != before)
      text +=
          grapnel::str("  subgraph cluster_hook", k, " {\n  label=\"", quoted(i.hook),
                       "\"; style=\"rounded,filled\"; color=\"#3060a0\"; fillcolor=\"#eef4fb\";\n");
    text += grapnel::str("  ", node, " [label=\"", i.op->name, i.inplace ? "_" : "", "\"",
                         special ? ", color=\"#b03030\", penwidth=2" : "", "];\n");
    if (!i.hook.empty() && (k + 1 == instructions_.size() || instructions_[k + 1].hook != i.hook))
      text += "  }\n";
    for (Id id : i.inputs)
      if (id != kNone && !makers[id].empty())
        edges += grapnel::str("  ", makers[id], " -> ", node, " [label=\"", type_text(values_[id]),
                              "\"];\n");
    for (Id id : i.outputs)
      if (id != kNone) makers[id] = node;
    if (i.inplace) makers[i.inputs[0]] = node;
  }
  text += edges;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    text += grapnel::str("  out", k, " [shape=ellipse, label=\"result ", k, "\"];\n");
    if (outputs_[k] != kNone && !makers[outputs_[k]].empty())
      text += grapnel::str("  ", makers[outputs_[k]], " -> out", k, ";\n");
  }
  return text + "}\n";
}

void Graph::verify() const {
  std::vector<bool> known(values_.size());
  auto define = [&](Id id) {
    GRAPNEL_ASSERT(id < values_.size() && !known[id], "value ", id, " is assigned twice, in:\n",
                   str());
    known[id] = true;
  };
  for (Id id : inputs_) define(id);
  for (Id id = 0; id < values_.size(); ++id)
    if (is_constant(values_[id]) || values_[id].number || values_[id].fresh) define(id);
  for (const Instruction& i : instructions_) {
    for (Id id : i.inputs)
      GRAPNEL_ASSERT(id == kNone || (id < values_.size() && known[id]), i.op->name,
                     " uses a value before it is assigned, in:\n", str());
    GRAPNEL_ASSERT(i.op->arity < 0 || static_cast<size_t>(i.op->arity) == i.inputs.size(),
                   i.op->name, " has ", i.inputs.size(), " inputs");
    for (Id id : i.outputs) {
      GRAPNEL_ASSERT(id != kNone || i.op->effect, i.op->name, " has a result without a name");
      if (id != kNone) define(id);
    }
    if (i.op->effect || i.inplace || i.op->random) continue;
    // Headers without memory are enough for the shape rules.
    std::vector<Tensor> headers;
    std::vector<const Tensor*> pointers;
    for (Id id : i.inputs) {
      headers.emplace_back();
      if (id == kNone) continue;
      const Value& v = values_[id];
      headers.back() = v.number ? wrap_number(*v.number)
                                : Tensor(TensorImpl::create(Storage::create_lazy(0), v.dtype,
                                                            v.sizes, contiguous_strides(v.sizes)));
    }
    for (const Tensor& t : headers) pointers.push_back(&t);
    if (i.op->family == Family::view || i.op->family == Family::call) continue;
    Specs specs;
    const char none = 0;
    i.op->infer({pointers.data(), pointers.size()},
                i.attrs.empty() ? static_cast<const void*>(&none) : i.attrs.data(), specs);
    GRAPNEL_ASSERT(specs.size() == i.outputs.size(), i.op->name, " has ", i.outputs.size(),
                   " results");
    for (size_t k = 0; k < specs.size(); ++k)
      GRAPNEL_ASSERT(specs[k].sizes == values_[i.outputs[k]].sizes &&
                         specs[k].dtype == values_[i.outputs[k]].dtype,
                     i.op->name, " gives ", specs[k].dtype, specs[k].sizes, ", not ",
                     type_text(values_[i.outputs[k]]));
  }
  for (Id id : outputs_)
    GRAPNEL_ASSERT(id == kNone || known[id], "a result is never assigned, in:\n", str());
}

}  // namespace grapnel
