/// Finding groups that run together: Note [Sweeps] in plan.h.
#pragma once

#include "grapnel/compile/classes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// Reorders the items of the plan, where nobody can tell, so that the parts of each sweep are
/// neighbours, and lists the sweeps. `sequence`, `shape`: values with equal sequences and equal
/// shapes, by the shape rules.
void find_sweeps(const capture::Trace& trace, Classes& sequence, Classes& shape, Plan& plan);

/// Whether two reductions cut their inputs into the same rows or columns: they lose the same
/// dimensions of one shape.
bool same_reduction(const capture::Trace& trace, Classes& shape, const capture::Instruction& a,
                    const capture::Instruction& b);

/// Calls fn(slot) for all slots that an item reads or writes, some of them more than once.
template <class Fn>
void for_each_touched_slot(const capture::Trace& t, const Plan& plan, const Item& item, Fn&& fn) {
  auto touch = [&](uint32_t call) {
    for (const capture::ValueId id : t.inputs_of(t.calls[call]))
      if (id != capture::kNone && !t.values[id].number) fn(t.values[id].slot);
    for (const capture::ValueId id : t.outputs_of(t.calls[call]))
      if (id != capture::kNone) fn(t.values[id].slot);
  };
  if (item.group < 0) touch(item.call);
  else
    for (const uint32_t call : plan.groups[static_cast<size_t>(item.group)].calls) touch(call);
}

}  // namespace grapnel::compiler
