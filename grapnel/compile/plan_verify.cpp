/// A plan checked against its trace.
#include <algorithm>
#include <utility>

#include "grapnel/base/error.h"
#include "grapnel/compile/group_builder.h"
#include "grapnel/compile/plan.h"
#include "grapnel/compile/prologues.h"
#include "grapnel/compile/sweeps.h"

namespace grapnel::compiler {

using namespace capture;

namespace {

/// Place of a call: its item, then its number in the group.
using At = std::pair<int64_t, int64_t>;
constexpr At kNowhere{-1, -1};

class Order {
 public:
  Order(const Trace& trace, const Plan& plan)
      : t_(trace),
        at_(trace.calls.size(), kNowhere),
        in_registers_(trace.calls.size()),
        writer_(trace.slots.size(), kNone),
        readers_(trace.slots.size()) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const Item& item = plan.items[i];
      if (item.group < 0) {
        put(item.call, {static_cast<int64_t>(i), 0});
        continue;
      }
      const Group& g = plan.groups[static_cast<size_t>(item.group)];
      for (size_t k = 0; k < g.calls.size(); ++k)
        put(g.calls[k], {static_cast<int64_t>(i), static_cast<int64_t>(k)});
      for (const uint32_t call : g.calls) in_registers_[call] = !is_stored(g, call);
    }
  }

  void check(uint32_t call) {
    const Instruction& c = t_.calls[call];
    if (at_[call] == kNowhere) {
      // Overwritten before anybody looked: only calculations may be left out for that.
      GRAPNEL_ASSERT(c.op->elementwise, "the plan has no place for call ", call, ", ", c.op->name);
      return;
    }
    for (const ValueId id : t_.inputs_of(c).subspan(first_operand(c))) {
      if (id == kNone || t_.values[id].number) continue;
      const SlotId slot = t_.values[id].slot;
      if (const uint32_t writer = writer_[slot]; writer != kNone) {
        follows(call, writer);
        GRAPNEL_ASSERT(!in_registers_[writer] || at_[writer].first == at_[call].first, "call ",
                       call, ", ", c.op->name, ", reads what call ", writer, ", ",
                       t_.calls[writer].op->name, ", does not store");
      }
      // What a group has in a register it does not read from memory.
      if (writer_[slot] == kNone || at_[writer_[slot]].first != at_[call].first)
        readers_[slot].push_back(call);
    }
    for (const ValueId id : t_.outputs_of(c)) {
      if (id == kNone) continue;
      const SlotId slot = t_.values[id].slot;
      const uint32_t writer = std::exchange(writer_[slot], call);
      if (in_registers_[call]) continue;  // what is never stored overwrites nothing
      if (writer != kNone && !in_registers_[writer]) follows(call, writer);
      for (const uint32_t reader : readers_[slot]) follows(call, reader);
      readers_[slot].clear();
    }
  }

 private:
  /// Whether the result of a call of the group is in memory when the group has run; that of the
  /// last one to write it.
  bool is_stored(const Group& g, uint32_t call) const {
    const SlotId slot = t_.values[t_.outputs_of(t_.calls[call])[0]].slot;
    for (const Group::Output& o : g.outputs)
      if (t_.values[o.value].slot == slot) return true;
    for (const Group::Reduction& r : g.reductions)
      if (r.call == call) return true;
    return g.product.stored && slot == t_.values[t_.outputs_of(t_.calls[g.product.call])[0]].slot;
  }
  void put(uint32_t call, At at) {
    GRAPNEL_ASSERT(at_[call] == kNowhere, "call ", call, ", ", t_.calls[call].op->name,
                   ", is in the plan twice");
    at_[call] = at;
  }
  void follows(uint32_t call, uint32_t before) const {
    if (before == kNone || before == call) return;
    GRAPNEL_ASSERT(at_[before] < at_[call], "call ", call, ", ", t_.calls[call].op->name,
                   ", is planned before call ", before, ", ", t_.calls[before].op->name,
                   ", which it has to follow");
  }

  const Trace& t_;
  std::vector<At> at_;
  std::vector<bool> in_registers_;
  std::vector<uint32_t> writer_;
  std::vector<std::vector<uint32_t>> readers_;
};

/// See Note [Epilogues].
void verify_product(const Trace& t, const Group& g) {
  const uint32_t call = g.product.call;
  const std::string_view name = t.calls[call].op->name;
  const ValueId out = t.outputs_of(t.calls[call])[0];
  GRAPNEL_ASSERT(!g.calls.empty() && g.calls[0] == call && g.reductions.empty(), "a group of ",
                 g.calls.size(), " calls with ", name, " inside");
  GRAPNEL_ASSERT(!g.inputs.empty() && g.inputs[0].value == out && !g.outputs.empty(), name,
                 ": nothing of the group is made of its result");
  const SlotId own = t.values[out].slot, memory = g.product.memory;
  const auto operands = t.inputs_of(t.calls[call]);
  const ProductForm form = t.calls[call].op->product_form(t.attrs_of(t.calls[call]));
  bool is_result = memory == own;
  for (const Group::Output& o : g.outputs) {
    const Value& v = t.values[o.value];
    is_result |= v.slot == memory && v.linear && v.dtype == t.values[out].dtype;
    GRAPNEL_ASSERT(!t.slots[v.slot].outside, name, ": the group writes to memory from outside");
    for (size_t k = 0; k < operands.size(); ++k)
      GRAPNEL_ASSERT(static_cast<int>(k) == form.addend || operands[k] == kNone ||
                         t.values[operands[k]].slot != v.slot,
                     name, ": the group overwrites operand ", k);
  }
  GRAPNEL_ASSERT(is_result, name,
                 ": it is computed in memory that is neither its own nor that of a result");
  for (size_t k = 1; k < g.inputs.size(); ++k)
    GRAPNEL_ASSERT(t.values[g.inputs[k].value].slot != memory, name,
                   ": it is computed in memory that the group still reads");
}

/// See Note [Inheriting memory].
void verify_heirs(const Trace& t, const Plan& plan) {
  const size_t never = plan.items.size();
  std::vector<size_t> first(t.slots.size(), never), last(t.slots.size());
  for (size_t i = 0; i < plan.items.size(); ++i)
    for_each_touched_slot(t, plan, plan.items[i], [&](SlotId slot) {
      first[slot] = std::min(first[slot], i);
      last[slot] = i;
    });
  for (const Plan::Heir& heir : plan.heirs) {
    GRAPNEL_ASSERT(last[heir.of] == first[heir.slot], "slot ", heir.slot,
                   " takes the memory of slot ", heir.of, " at item ", first[heir.slot],
                   ", and not at its last use, item ", last[heir.of]);
    GRAPNEL_ASSERT(
        !t.slots[heir.slot].outside && !t.slots[heir.of].outside && !t.slots[heir.of].live, "slot ",
        heir.of, " cannot be overwritten by slot ", heir.slot);
  }
}

}  // namespace

void verify(const Trace& trace, const std::vector<bool>& skipped, const Plan& plan) {
  Order order(trace, plan);
  for (uint32_t i = 0; i < trace.calls.size(); ++i)
    if (!skipped[i] && trace.calls[i].op->family != Family::view) order.check(i);
  for (const Group& g : plan.groups)
    if (g.product) verify_product(trace, g);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (!plan.items[i].prologue) continue;
    GRAPNEL_ASSERT(
        plan.items[i].group >= 0 && i + 1 < plan.items.size() && product_at(plan, i + 1) != kNone,
        "item ", i, " prepares a product that is not there");
    const Group& g = plan.groups[static_cast<size_t>(plan.items[i].group)];
    GRAPNEL_ASSERT(!g.product && g.reductions.empty() && g.outputs.size() == 1, "item ", i,
                   " does more than prepare a product");
  }
  verify_heirs(trace, plan);
  for (const Sweep& s : plan.sweeps) {
    GRAPNEL_ASSERT(s.parts.size() > 1 && s.first + s.parts.size() <= plan.items.size(),
                   "a sweep of ", s.parts.size(), " parts at item ", s.first);
    for (size_t k = 0; k < s.parts.size(); ++k)
      GRAPNEL_ASSERT(plan.items[s.first + k].group >= 0, "a single call in a sweep");
  }
}

}  // namespace grapnel::compiler
