#include "grapnel/compile/passes.h"

#include <bit>
#include <map>

namespace grapnel::compile_detail {

using namespace capture;

PassOptions& pass_options() {
  static PassOptions options;
  return options;
}

namespace {

bool is_tensor(const Trace& trace, ValueId id) { return id != kNone && !trace.values[id].number; }

/// Calls whose results nobody sees. Random draws stay, like everything that acts on memory from outside.
void drop_dead_code(const Trace& trace, std::vector<bool>& skipped) {
  std::vector<bool> wanted(trace.slots.size());
  for (SlotId s = 0; s < trace.slots.size(); ++s) wanted[s] = trace.slots[s].live || trace.slots[s].outside;
  for (size_t i = trace.calls.size(); i-- > 0;) {
    const Instruction& c = trace.calls[i];
    if (skipped[i]) continue;
    bool keep = c.op->effect || c.op->random;
    if (c.op->family != Family::view)
      for (const ValueId id : trace.outputs_of(c)) keep |= id != kNone && wanted[trace.values[id].slot];
    if (!keep) {
      skipped[i] = true;
      continue;
    }
    for (const ValueId id : trace.inputs_of(c))
      if (is_tensor(trace, id)) wanted[trace.values[id].slot] = true;
  }
}

/// Calls that repeat an earlier one on unchanged operands. Only where nobody can tell the results apart: the repeated one is not
/// alive at the end, and neither is written again.
void join_common(const Trace& trace, Simplified& result) {
  std::vector<uint32_t> writes(trace.slots.size());
  for (size_t i = 0; i < trace.calls.size(); ++i)
    if (trace.calls[i].op->family != Family::view)
      for (const ValueId id : trace.outputs_of(trace.calls[i]))
        if (id != kNone) ++writes[trace.values[id].slot];
  std::vector<ValueId> same(trace.values.size());
  for (ValueId v = 0; v < same.size(); ++v) same[v] = v;
  std::map<std::vector<uint64_t>, size_t> seen;
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    const Instruction& c = trace.calls[i];
    if (result.skipped[i] || c.inplace || c.op->effect || c.op->family == Family::view || c.op->attrs_size > 0 || c.outputs != 1) continue;
    const ValueId out = trace.outputs_of(c)[0];
    if (writes[trace.values[out].slot] != 1) continue;
    std::vector<uint64_t> signature{std::bit_cast<uint64_t>(c.op)};
    bool constant = true;
    for (const ValueId id : trace.inputs_of(c)) {
      // Numbers are lifted one by one; two that are equal now may differ next time.
      constant &= id == kNone || (!trace.values[id].number && writes[trace.values[id].slot] <= (trace.slots[trace.values[id].slot].outside ? 0u : 1u));
      signature.push_back(id == kNone ? kNone : same[id]);
    }
    if (!constant) continue;
    const auto [at, added] = seen.try_emplace(std::move(signature), i);
    if (added || trace.slots[trace.values[out].slot].live) continue;
    const ValueId twin = trace.outputs_of(trace.calls[at->second])[0];
    result.skipped[i] = true;
    result.same.emplace_back(trace.values[out].slot, trace.values[twin].slot);
    same[out] = twin;
  }
}

}  // namespace

Simplified simplify(const Trace& trace, const PassOptions& options) {
  Simplified result;
  result.skipped.resize(trace.calls.size());
  if (options.common_subexpressions) join_common(trace, result);
  if (options.dead_code && result.same.empty()) {
    drop_dead_code(trace, result.skipped);
  } else if (options.dead_code) {
    Trace joined = trace;
    redirect(joined, result);
    drop_dead_code(joined, result.skipped);
  }
  return result;
}

void redirect(Trace& trace, const Simplified& simplified) {
  for (const auto& [from, to] : simplified.same)
    for (ValueId v = 0; v < trace.values.size(); ++v)
      if (!trace.values[v].number && trace.values[v].slot == from) trace.values[v].slot = to;
}

}  // namespace grapnel::compile_detail
