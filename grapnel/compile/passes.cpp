#include "grapnel/compile/passes.h"

#include <algorithm>
#include <bit>
#include <map>

#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::compiler {

using namespace capture;

PassOptions& pass_options() {
  static PassOptions options;
  return options;
}

namespace {

bool must_run(const Instruction& c) {
  return c.op->effect || c.op->random || c.outputs == 0 || c.op->refuses_values;
}
bool is_tensor(const Trace& trace, ValueId id) { return id != kNone && !trace.values[id].number; }

/// Calls whose results nobody sees. Random draws stay, like everything that acts on memory from
/// outside, and what may fail for its values.
void drop_dead_code(const Trace& trace, std::vector<bool>& skipped) {
  std::vector<bool> wanted(trace.slots.size());
  for (SlotId s = 0; s < trace.slots.size(); ++s)
    wanted[s] = trace.slots[s].live || trace.slots[s].outside;
  for (size_t i = trace.calls.size(); i-- > 0;) {
    const Instruction& c = trace.calls[i];
    if (skipped[i]) continue;
    bool keep = must_run(c);
    if (c.op->family != Family::view)
      for (const ValueId id : trace.outputs_of(c))
        keep |= id != kNone && wanted[trace.values[id].slot];
    if (!keep) {
      skipped[i] = true;
      continue;
    }
    for (const ValueId id : trace.inputs_of(c))
      if (is_tensor(trace, id)) wanted[trace.values[id].slot] = true;
  }
}

/// Finds slots that hold what another slot holds: a call is then skipped, and its readers look at
/// the other slot. Only where nobody can tell them apart: the slot is not alive at the end, and
/// neither is written again.
class Twins {
 public:
  Twins(const Trace& trace, Simplified& result)
      : t_(trace),
        result_(result),
        writes_(trace.slots.size()),
        same_(trace.values.size()),
        twin_(trace.slots.size(), kNone),
        made_by_(trace.slots.size(), kNone) {
    for (uint32_t i = 0; i < trace.calls.size(); ++i) {
      effects_ |= trace.calls[i].op->effect;
      if (trace.calls[i].op->family == Family::view) continue;
      for (const ValueId id : trace.outputs_of(trace.calls[i]))
        if (id != kNone) {
          ++writes_[slot_of(id)];
          made_by_[slot_of(id)] = i;
        }
    }
    for (ValueId v = 0; v < same_.size(); ++v) same_[v] = v;
  }

  void find(const PassOptions& options) {
    for (uint32_t i = 0; i < t_.calls.size(); ++i) {
      const Instruction& c = t_.calls[i];
      if (c.inplace || c.op->effect || c.op->family == Family::view || c.outputs != 1 ||
          writes_[slot_of(t_.outputs_of(c)[0])] != 1)
        continue;
      if (options.copies && is_copy(i)) continue;
      if (options.algebra && undoes(i)) continue;
      if (options.common_subexpressions) repeats(i);
    }
  }

 private:
  SlotId slot_of(ValueId id) const { return t_.values[id].slot; }
  bool is_constant(ValueId id) const {
    if (!is_tensor(t_, id)) return false;
    const Slot& slot = t_.slots[slot_of(id)];
    if (effects_ && (slot.outside || slot.live))
      return false;  // code that we do not see may change it
    return writes_[slot_of(id)] <= (slot.outside ? 0u : 1u);
  }

  /// The result of call i is what `source` holds.
  bool join(uint32_t i, ValueId source) {
    const ValueId out = t_.outputs_of(t_.calls[i])[0];
    if (t_.slots[slot_of(out)].live) return false;
    if (effects_ && t_.slots[slot_of(source)].live) return false;
    const SlotId to = twin_[slot_of(source)] == kNone ? slot_of(source) : twin_[slot_of(source)];
    result_.skipped[i] = true;
    result_.same.emplace_back(slot_of(out), to);
    twin_[slot_of(out)] = to;
    same_[out] = same_[source];
    return true;
  }
  /// The same elements at the same places of memory, type included.
  bool could_be(ValueId out, ValueId source) const {
    const Value &a = t_.values[out], &b = t_.values[source];
    // Equal sizes are no coincidence here: an elementwise call of one operand has its shape.
    return a.linear && b.linear && a.dtype == b.dtype && t_.sizes_of(a) == t_.sizes_of(b);
  }

  /// clone(), and conversions to the type that is there already.
  bool is_copy(uint32_t i) {
    const Instruction& c = t_.calls[i];
    if (c.op != &op_of<Clone> && c.op != &op_of<Convert>) return false;
    const ValueId in = t_.inputs_of(c)[0], out = t_.outputs_of(c)[0];
    return is_constant(in) && could_be(out, in) && join(i, in);
  }

  /// An op applied to its own result, like -(-x).
  bool undoes(uint32_t i) {
    const Instruction& c = t_.calls[i];
    if (c.op->twice == Twice::counts) return false;
    const ValueId out = t_.outputs_of(c)[0], in = c.inputs == 1 ? t_.inputs_of(c)[0] : kNone;
    if (in == kNone || !is_constant(in) || t_.slots[slot_of(in)].outside || !could_be(out, in))
      return false;
    const Instruction& inner = t_.calls[made_by_[slot_of(in)]];
    if (inner.op != c.op || inner.inplace) return false;
    const ValueId source = c.op->twice == Twice::undoes ? t_.inputs_of(inner)[0] : in;
    // What is negated twice must not be overwritten in between or later.
    return is_constant(source) && could_be(out, source) && join(i, source);
  }

  /// A call that repeats an earlier one on unchanged operands.
  void repeats(uint32_t i) {
    const Instruction& c = t_.calls[i];
    if (c.op->attrs_size > 0 || c.op->random) return;
    std::vector<uint64_t> signature{std::bit_cast<uint64_t>(c.op)};
    for (const ValueId id : t_.inputs_of(c)) {
      // Numbers are lifted one by one; two that are equal now may differ next time.
      if (id != kNone && !is_constant(id)) return;
      signature.push_back(id == kNone ? kNone : same_[id]);
    }
    const auto [at, added] = seen_.try_emplace(std::move(signature), i);
    if (!added) join(i, t_.outputs_of(t_.calls[at->second])[0]);
  }

  const Trace& t_;
  Simplified& result_;
  std::vector<uint32_t> writes_;
  std::vector<ValueId> same_;
  std::vector<SlotId> twin_;       ///< what is read instead of a slot
  std::vector<uint32_t> made_by_;  ///< the last call that writes a slot
  bool effects_ = false;
  std::map<std::vector<uint64_t>, uint32_t> seen_;
};

}  // namespace

Simplified simplify(const Trace& trace, const PassOptions& options) {
  Simplified result;
  result.skipped.resize(trace.calls.size());
  Twins(trace, result).find(options);
  if (options.dead_code && result.same.empty()) {
    drop_dead_code(trace, result.skipped);
  } else if (options.dead_code) {
    Trace joined = trace;
    redirect(joined, result);
    drop_dead_code(joined, result.skipped);
  }
  return result;
}

void verify(const Trace& trace, const Simplified& simplified) {
  GRAPNEL_ASSERT(simplified.skipped.size() == trace.calls.size(), "passes answered for ",
                 simplified.skipped.size(), " of ", trace.calls.size(), " calls");
  std::vector<bool> replaced(trace.slots.size());
  for (const auto& [from, to] : simplified.same) {
    GRAPNEL_ASSERT(from != to && trace.slots[from].bytes == trace.slots[to].bytes, "slot ", from,
                   " cannot stand for slot ", to);
    GRAPNEL_ASSERT(!trace.slots[from].live && !trace.slots[from].outside, "slot ", from,
                   " is seen from outside");
    GRAPNEL_ASSERT(!replaced[from] && !replaced[to], "slot ", to, " was replaced itself");
    replaced[from] = true;
  }
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    const Instruction& c = trace.calls[i];
    if (!simplified.skipped[i] || c.op->family == Family::view) continue;
    GRAPNEL_ASSERT(!must_run(c), c.op->name, " must run");
    for (const ValueId id : trace.outputs_of(c)) {
      if (id == kNone) continue;
      const Slot& slot = trace.slots[trace.values[id].slot];
      GRAPNEL_ASSERT(!slot.live && !slot.outside, "the result of call ", i, ", ", c.op->name,
                     ", is needed");
    }
  }
}

void redirect(Trace& trace, const Simplified& simplified) {
  for (const auto& [from, to] : simplified.same)
    for (ValueId v = trace.slots[from].first; v != kNone; v = trace.values[v].next)
      trace.values[v].slot = to;
}

}  // namespace grapnel::compiler
