#include "grapnel/compile/inherit.h"

#include <algorithm>

#include "grapnel/compile/sweeps.h"

namespace grapnel::compiler {

using namespace capture;

namespace {

class Finder {
 public:
  Finder(const Trace& trace, Classes& sequence, const Plan& plan)
      : t_(trace),
        sequence_(sequence),
        plan_(plan),
        first_(trace.slots.size(), plan.items.size()),
        last_(trace.slots.size()),
        local_(trace.slots.size()),
        begins_(plan.items.size()) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      begins_[i] = i;
      for_each_touched_slot(t_, plan, plan.items[i], [&](SlotId slot) {
        first_[slot] = std::min(first_[slot], i);
        last_[slot] = i;
      });
    }
    for (const Sweep& s : plan.sweeps) {
      std::fill_n(begins_.begin() + s.first, s.parts.size(), s.first);
      for (const Sweep::Local& l : s.locals) local_[l.slot] = true;
    }
  }

  std::vector<Plan::Heir> find() {
    std::vector<Plan::Heir> heirs;
    for (size_t i = 0; i < plan_.items.size(); ++i) {
      if (plan_.items[i].group < 0 || plan_.items[i].prologue || group(i).product) continue;
      for (const Group::Output& out : group(i).outputs) {
        if (!begins_at(out.value, i)) continue;
        const auto& inputs = group(i).inputs;
        const auto in = std::find_if(inputs.begin(), inputs.end(), [&](const Group::Input& x) {
          return ends_at(x.value, i) && same_place(t_, x.value, out.value) &&
                 stays_in_place(slot_of(x.value), out.value, i);
        });
        if (in == inputs.end()) continue;
        heirs.push_back({slot_of(in->value), slot_of(out.value)});
        local_[slot_of(in->value)] = true;  // only one can inherit
      }
    }
    return heirs;
  }

 private:
  const Group& group(size_t i) const {
    return plan_.groups[static_cast<size_t>(plan_.items[i].group)];
  }
  SlotId slot_of(ValueId id) const { return t_.values[id].slot; }

  /// Whether nobody has touched the slot of a result before.
  bool begins_at(ValueId id, size_t i) const {
    const SlotId slot = slot_of(id);
    return t_.values[id].linear && !t_.slots[slot].outside && !local_[slot] && first_[slot] == i;
  }
  bool ends_at(ValueId id, size_t i) const {
    const SlotId slot = slot_of(id);
    return t_.values[id].linear && !t_.slots[slot].outside && !t_.slots[slot].live &&
           !local_[slot] && last_[slot] == i;
  }
  /// Whether what runs in step with item i, up to it, sees the slot element by element as `value`
  /// does.
  bool stays_in_place(SlotId slot, ValueId value, size_t i) {
    const auto fits = [&](ValueId id) {
      return slot_of(id) != slot || (same_place(t_, id, value) && sequence_.same(id, value));
    };
    for (size_t k = begins_[i]; k <= i; ++k) {
      const Group& g = group(k);
      if (!std::all_of(g.inputs.begin(), g.inputs.end(),
                       [&](const Group::Input& in) { return fits(in.value); }) ||
          !std::all_of(g.outputs.begin(), g.outputs.end(),
                       [&](const Group::Output& o) { return fits(o.value); }))
        return false;
      for (const Group::Reduction& r : g.reductions)
        if (slot_of(t_.outputs_of(t_.calls[r.call])[0]) == slot) return false;
    }
    return true;
  }

  const Trace& t_;
  Classes& sequence_;
  const Plan& plan_;
  std::vector<size_t> first_, last_;  ///< the items that touch a slot
  std::vector<bool> local_;           ///< has no memory of its own to give or take
  std::vector<size_t> begins_;        ///< where the sweep of an item begins, or the item itself
};

}  // namespace

void find_heirs(const Trace& trace, Classes& sequence, Plan& plan) {
  plan.heirs = Finder(trace, sequence, plan).find();
}

void let_inherit(const Plan& plan, Trace& trace) {
  // The last ones first: an heir may have one itself.
  for (auto heir = plan.heirs.rbegin(); heir != plan.heirs.rend(); ++heir) {
    const size_t bytes = trace.slots[heir->slot].bytes;
    if (trace.slots[heir->of].bytes != bytes) continue;
    StoragePtr& memory = trace.held[heir->slot];
    if (!memory) memory = Storage::create_lazy(bytes, trace.slots[heir->slot].device);
    trace.held[heir->of] = memory;
  }
}

}  // namespace grapnel::compiler
