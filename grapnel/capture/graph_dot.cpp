/// Pictures of graphs in the DOT language.
#include "grapnel/capture/graph.h"
#include "grapnel/capture/graph_text.h"

namespace grapnel {

using capture::kNone;

namespace {

/// For a text in quotes.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string Graph::dot() const {
  using graph_text::of;
  const auto& instructions = calls_.calls;
  std::string text =
      "digraph grapnel {\n  rankdir=TB;\n  node [shape=box, style=rounded, "
      "fontname=\"sans-serif\"];\n";
  std::string edges;  // after all nodes: one named inside a frame would be drawn inside it
  std::vector<std::string> makers(values_.size());
  for (const Id id : inputs_) {
    if (id == kNone) continue;
    makers[id] = "in_" + name_of(id);
    text += grapnel::str("  ", makers[id], " [shape=ellipse, label=\"", name_of(id), ": ",
                         of(values_[id]), "\"];\n");
  }
  for (Id id = 0; id < values_.size(); ++id)
    if (values_[id].is_constant()) {
      makers[id] = "const_" + name_of(id);
      text += grapnel::str("  ", makers[id], " [shape=ellipse, style=dashed, label=\"", name_of(id),
                           ": ", of(values_[id]), "\"];\n");
    }
  for (size_t k = 0; k < instructions.size(); ++k) {
    const Instruction& i = instructions[k];
    const std::string node = grapnel::str("op", k);
    const bool special = i.op->effect || i.inplace;
    const std::string_view hook = calls_.hook_of(instructions[k]),
                           before =
                               k > 0 ? calls_.hook_of(instructions[k - 1]) : std::string_view();
    if (!hook.empty() && hook != before)
      text +=
          grapnel::str("  subgraph cluster_hook", k, " {\n  label=\"", quoted(hook),
                       "\"; style=\"rounded,filled\"; color=\"#3060a0\"; fillcolor=\"#eef4fb\";\n");
    text += grapnel::str("  ", node, " [label=\"", i.op->name, i.inplace ? "_" : "", "\"",
                         special ? ", color=\"#b03030\", penwidth=2" : "", "];\n");
    if (!hook.empty() &&
        (k + 1 == instructions.size() || calls_.hook_of(instructions[k + 1]) != hook))
      text += "  }\n";
    for (const Id id : calls_.inputs_of(i))
      if (id != kNone && !makers[id].empty())
        edges +=
            grapnel::str("  ", makers[id], " -> ", node, " [label=\"", of(values_[id]), "\"];\n");
    for (const Id id : calls_.outputs_of(i))
      if (id != kNone) makers[id] = node;
  }
  text += edges;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    text += grapnel::str("  out", k, " [shape=ellipse, label=\"result ", k, "\"];\n");
    if (outputs_[k] != kNone && !makers[outputs_[k]].empty())
      text += grapnel::str("  ", makers[outputs_[k]], " -> out", k, ";\n");
  }
  return text + "}\n";
}

}  // namespace grapnel
