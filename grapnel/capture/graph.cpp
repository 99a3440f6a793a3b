#include "grapnel/capture/graph.h"

#include <charconv>
#include <ostream>

#include "grapnel/base/source_site.h"
#include "grapnel/capture/graph_text.h"
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
  void add(std::string_view name, const std::string& value) {
    text += str(text.empty() ? "" : ", ", name, "=", value);
  }
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

}  // namespace

namespace graph_text {
std::string of(const Scalar& s) {
  if (s.is_bool()) return s.to_bool() ? "true" : "false";
  return s.is_integral() ? std::to_string(s.to_int()) : text_of(s.to_double());
}
std::string of(const Graph::Value& v) {
  if (v.lifted) return "number";
  const std::string type = str(name(v.dtype), text_of(v.sizes));
  return v.device.is_cpu() ? type : str(type, " on ", v.device);
}
std::string of_attrs(const capture::Calls& calls, const Graph::Instruction& i) {
  AttrText attrs;
  if (i.op->attrs_size > 0) i.op->visit_attrs(calls.attrs_of(i), attrs);
  return attrs.text;
}
}  // namespace graph_text

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
  for (const Instruction& i : calls_.calls) n += i.op->name == op;
  return n;
}

void Graph::order_values() {
  std::vector<Id> places(values_.size(), kNone);
  Id next = 0;
  auto place = [&](Id id) {
    if (id != kNone && places[id] == kNone) places[id] = next++;
  };
  for (const Id id : inputs_) place(id);
  for (Id id = 0; id < values_.size(); ++id)
    if (values_[id].is_constant() || values_[id].fresh) place(id);
  for (const Instruction& i : calls_.calls)
    for (const Id id : calls_.outputs_of(i)) place(id);
  for (Id id = 0; id < values_.size(); ++id) place(id);  // numbers, which have no names

  std::vector<Value> ordered(values_.size());
  for (Id id = 0; id < values_.size(); ++id) ordered[places[id]] = std::move(values_[id]);
  values_ = std::move(ordered);
  auto rename = [&](auto& ids) {
    for (Id& id : ids)
      if (id != kNone) id = places[id];
  };
  rename(inputs_);
  rename(outputs_);
  rename(calls_.ids);
}

std::string Graph::str(bool sources) const {
  using graph_text::of;
  auto type = [&](Id id) { return id == kNone ? std::string("none") : of(values_[id]); };
  auto operand = [&](Id id) {
    return id == kNone          ? std::string("none")
           : values_[id].number ? of(*values_[id].number)
                                : name_of(id);
  };
  auto list = [](const auto& ids, auto&& text_of_one) {
    std::string text;
    for (const Id& id : ids) text += (&id != &*ids.begin() ? ", " : "") + text_of_one(id);
    return text;
  };
  std::string text =
      "graph(" +
      list(inputs_,
           [&](Id id) {
             return id == kNone ? type(id) : grapnel::str(name_of(id), ": ", type(id));
           }) +
      ") {\n";
  for (Id id = 0; id < values_.size(); ++id)
    if (values_[id].is_constant() || values_[id].fresh)
      text += grapnel::str("  ", name_of(id),
                           values_[id].fresh ? " = empty : " : " = constant : ", type(id), "\n");
  for (const Instruction& i : calls_.calls) {
    const auto inputs = calls_.inputs_of(i);
    const auto outputs = i.inplace ? std::span<const Id>() : calls_.outputs_of(i);
    const std::string attrs = graph_text::of_attrs(calls_, i);
    text += "  " + list(outputs, operand) + (outputs.empty() ? "" : " = ");
    text += std::string(i.op->name) + (i.inplace ? "_(" : "(") + list(inputs, operand);
    text += (inputs.empty() || attrs.empty() ? "" : ", ") + attrs + ")";
    if (!outputs.empty()) text += " : " + list(outputs, type);
    if (const auto hook = calls_.hook_of(i); !hook.empty()) text += "  # in " + in_one_line(hook);
    if (sources) text += "  # " + in_one_line(base::describe({i.site}));
    text += "\n";
  }
  return text + "  return" + (outputs_.empty() ? "" : " ") + list(outputs_, operand) + "\n}\n";
}
std::ostream& operator<<(std::ostream& out, const Graph& graph) { return out << graph.str(); }

void Graph::verify() const {
  std::vector<bool> known(values_.size());
  auto define = [&](Id id) {
    GRAPNEL_ASSERT(id < values_.size() && !known[id], "value ", id, " is assigned twice, in:\n",
                   str());
    known[id] = true;
  };
  for (const Id id : inputs_)
    if (id != kNone) define(id);
  for (Id id = 0; id < values_.size(); ++id)
    if (values_[id].is_constant() || values_[id].number || values_[id].fresh) define(id);
  for (const Instruction& i : calls_.calls) {
    const auto inputs = calls_.inputs_of(i), outputs = calls_.outputs_of(i);
    for (const Id id : inputs)
      GRAPNEL_ASSERT(id == kNone || (id < values_.size() && known[id]), i.op->name,
                     " uses a value before it is assigned, in:\n", str());
    GRAPNEL_ASSERT(i.op->arity < 0 || static_cast<size_t>(i.op->arity) == inputs.size(), i.op->name,
                   " has ", inputs.size(), " inputs");
    if (i.inplace) continue;
    for (const Id id : outputs) {
      GRAPNEL_ASSERT(id != kNone || i.op->effect, i.op->name, " has a result without a name");
      if (id != kNone) define(id);
    }
    if (i.op->effect || i.op->random) continue;
    // Headers without memory are enough for the shape rules.
    std::vector<Tensor> headers;
    std::vector<const Tensor*> pointers;
    for (const Id id : inputs) {
      headers.emplace_back();
      if (id == kNone) continue;
      const Value& v = values_[id];
      headers.back() = v.number ? wrap_number(*v.number)
                       : v.lifted
                           ? wrap_number(0.0)
                           : Tensor(TensorImpl::create(Storage::create_lazy(0, kCPU), v.dtype,
                                                       v.sizes, contiguous_strides(v.sizes)));
    }
    for (const Tensor& t : headers) pointers.push_back(&t);
    if (i.op->family == Family::view || i.op->family == Family::call) continue;
    Specs specs;
    const char none = 0;
    i.op->infer({pointers.data(), pointers.size()},
                i.op->attrs_size > 0 ? calls_.attrs_of(i) : &none, specs);
    GRAPNEL_ASSERT(specs.size() == outputs.size(), i.op->name, " has ", outputs.size(), " results");
    for (size_t k = 0; k < specs.size(); ++k)
      GRAPNEL_ASSERT(specs[k].sizes == values_[outputs[k]].sizes &&
                         specs[k].dtype == values_[outputs[k]].dtype,
                     i.op->name, " gives ", specs[k].dtype, specs[k].sizes, ", not ",
                     graph_text::of(values_[outputs[k]]));
  }
  for (Id id : outputs_)
    GRAPNEL_ASSERT(id == kNone || known[id], "a result is never assigned, in:\n", str());
}

}  // namespace grapnel
