#include "command/picture.h"

#include <algorithm>

#include "command/process.h"
#include "grapnel/base/error.h"

namespace command {

using namespace grapnel;
using capture::kNone;

namespace {

constexpr const char* hook_colour = "#f59e0b";

struct Colours {
  const char *fill, *line;
};
Colours colours_of(const std::string& phase) {
  if (phase == "forward") return {"#dbeafe", "#3b82f6"};
  if (phase == "backward") return {"#e0e7ff", "#6366f1"};
  return {"#e2e8f0", "#64748b"};
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

std::string type_of(const capture::Trace& trace, const capture::Value& value) {
  std::string text = str(name(value.dtype), "[");
  const char* comma = "";
  for (const int64_t size : trace.sizes_of(value)) text += str(comma, size), comma = ",";
  return text + "]";
}

}  // namespace

void Picture::add_graph(const capture::Trace& trace) {
  calls_.assign(trace.calls.size(), {});
  sources_.clear();
  kernels_.clear();
  // Views are other looks at the same slot, so the last writer of a slot is where a value comes
  // from.
  std::vector<int> maker(trace.slots.size());
  std::vector<bool> known(trace.slots.size());
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    const capture::Instruction& call = trace.calls[i];
    Call& drawn = calls_[i];
    drawn.op = str(call.op->name, call.inplace ? "_" : "");
    for (const capture::ValueId id : trace.inputs_of(call)) {
      if (id == kNone || trace.values[id].number) continue;
      const capture::SlotId slot = trace.values[id].slot;
      if (!known[slot]) {
        known[slot] = true;
        const auto found = names.find(trace.slots[slot].storage);
        maker[slot] = ~static_cast<int>(sources_.size());
        sources_.push_back(found == names.end() ? "" : found->second);
      }
      drawn.inputs.push_back(maker[slot]);
    }
    if (call.op->family == Family::view) continue;
    for (const capture::ValueId id : trace.outputs_of(call)) {
      if (id == kNone) continue;
      if (drawn.type.empty()) drawn.type = type_of(trace, trace.values[id]);
      known[trace.values[id].slot] = true;
      maker[trace.values[id].slot] = static_cast<int>(i);
    }
  }
}

void Picture::add_item(const RunObserver::Item& item) {
  for (const uint32_t call : item.calls) {
    calls_[call].ran = !calls_[call].type.empty() || !item.kernel;
    if (item.kernel) calls_[call].kernel = static_cast<int>(kernels_.size());
  }
  if (item.kernel) kernels_.emplace_back(item.calls.begin(), item.calls.end());
}

std::string Picture::phase_of(uint32_t call) const {
  std::string found;
  for (const Phase& phase : phases)
    if (phase.begin <= call) found = phase.name;
  return found;
}

int Picture::hook_of(uint32_t call) const {
  for (size_t i = 0; i < hooks.size(); ++i)
    if (hooks[i].begin <= call && call < hooks[i].end) return static_cast<int>(i);
  return -1;
}

void Picture::draw_call(std::string& text, uint32_t i) const {
  const Call& call = calls_[i];
  const int hook = hook_of(i);
  const Colours colours = hook >= 0 ? Colours{"#fef3c7", hook_colour} : colours_of(phase_of(i));
  const std::string tip = hook >= 0 ? str(call.op, " ", call.type, ", recorded by the hook ",
                                          hooks[static_cast<size_t>(hook)].name, " of ",
                                          hooks[static_cast<size_t>(hook)].tensor)
                                    : str(call.op, " ", call.type, ", ", phase_of(i));
  text += str("    c", i, " [label=", quoted(call.op + "\n" + call.type), ", fillcolor=\"",
              colours.fill, "\", color=\"", colours.line, "\", tooltip=", quoted(tip), "];\n");
}

std::string Picture::dot(const Style& style) const {
  std::string text =
      "digraph step {\n"
      "  graph [rankdir=TB, bgcolor=\"transparent\", fontname=\"Helvetica\", nodesep=0.18, "
      "ranksep=0.32, "
      "tooltip=\" \"];\n"
      "  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\", fontsize=10, "
      "height=0.3, "
      "margin=\"0.09,0.04\"];\n"
      "  edge [color=\"#94a3b8\", arrowsize=0.55];\n";
  const auto shown = [&](uint32_t i) {
    return calls_[i].ran && style.phases.contains(phase_of(i));
  };
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const auto& kernel = kernels_[k];
    if (std::none_of(kernel.begin(), kernel.end(), shown)) continue;
    if (style.kernels)
      text +=
          str("  subgraph cluster_k", k, " {\n    label=\"kernel ", k + 1, ", ", kernel.size(),
              kernel.size() == 1 ? " op\"" : " ops\"",
              "; style=\"rounded,filled\"; color=\"#cbd5e1\"; fillcolor=\"#f8fafc\"; fontsize=9; "
              "fontcolor=\"#475569\"; margin=9; labeljust=l;\n");
    for (const uint32_t i : kernel)
      if (shown(i)) draw_call(text, i);
    if (style.kernels) text += "  }\n";
  }
  std::set<int> used;
  for (uint32_t i = 0; i < calls_.size(); ++i) {
    if (!shown(i)) continue;
    if (calls_[i].kernel < 0) draw_call(text, i);
    for (const int from : std::set<int>(calls_[i].inputs.begin(), calls_[i].inputs.end())) {
      const bool source = from < 0;
      if (source && sources_[static_cast<size_t>(~from)].empty()) continue;
      if (!source && !shown(static_cast<uint32_t>(from))) continue;
      if (source) used.insert(~from);
      text += str("  ", source ? "s" : "c", source ? ~from : from, " -> c", i,
                  source ? " [style=dashed];\n" : ";\n");
    }
  }
  for (const int s : used)
    text += str("  s", s,
                " [shape=ellipse, style=filled, fillcolor=\"#dcfce7\", color=\"#22c55e\", label=",
                quoted(sources_[static_cast<size_t>(s)]),
                ", tooltip=", quoted(sources_[static_cast<size_t>(s)]), "];\n");
  for (size_t h = 0; h < hooks.size(); ++h) {
    const Hook& hook = hooks[h];
    uint32_t first = hook.begin;
    while (first < hook.end && !shown(first)) ++first;
    const bool records = first < hook.end;
    if (!records && (hook.source == kNone || !shown(hook.source))) continue;
    text += str("  h", h, " [shape=cds, style=filled, fillcolor=\"", hook_colour,
                "\", color=\"#b45309\", fontcolor=\"#451a03\", label=",
                quoted(hook.name + "\n" + hook.tensor),
                ", class=\"hook\", tooltip=", quoted("hook " + hook.name + " of " + hook.tensor),
                "];\n");
    text += records
                ? str("  h", h, " -> c", first, " [color=\"", hook_colour, "\", penwidth=1.6];\n")
                : str("  c", hook.source, " -> h", h, " [color=\"", hook_colour,
                      "\", penwidth=1.6];\n");
  }
  return text + "}\n";
}

std::string svg_of(const std::string& dot) {
  const ProcessResult result = run_process({"dot", "-Tsvg"}, dot);
  check(result.status != ProcessResult::not_found,
        "Graphviz, which draws graphs, is not installed. On Debian: apt-get install "
        "graphviz\nWithout it: "
        "grapnel graph --format dot.");
  check(result.status == 0, "Graphviz ended with status ", result.status, ": ", result.error);
  // Only the picture itself: it becomes part of a page.
  const size_t begin = result.output.find("<svg");
  check(begin != std::string::npos, "Graphviz made no picture: ", result.error);
  return result.output.substr(begin);
}

}  // namespace command
