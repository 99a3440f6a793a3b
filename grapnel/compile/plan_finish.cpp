#include "grapnel/compile/plan_finish.h"

#include <algorithm>
#include <utility>

#include "grapnel/compile/inherit.h"
#include "grapnel/compile/prologues.h"
#include "grapnel/compile/sweeps.h"

namespace grapnel::compiler {

using namespace capture;

namespace {

/// Whether a product with an addend, the last call of the plan so far, reads what the item before
/// it makes.
bool follows_its_prologue(const Trace& t, const Plan& plan, const Group& product) {
  if (product.program.steps.empty() || plan.items.size() < 2) return false;
  const Item& before = plan.items[plan.items.size() - 2];
  if (before.group < 0) return false;
  const Group& g = plan.groups[static_cast<size_t>(before.group)];
  const Instruction& c = t.calls[product.product.call];
  const ValueId operand =
      t.inputs_of(c)[static_cast<size_t>(c.op->product_form(t.attrs_of(c)).operand)];
  return g.outputs.size() == 1 && t.values[g.outputs[0].value].slot == t.values[operand].slot;
}

/// The eager kernel of a single call is as good as a generated one.
void drop_single_calls(Plan& plan) {
  std::vector<bool> swept(plan.items.size());
  for (const Sweep& s : plan.sweeps) std::fill_n(swept.begin() + s.first, s.parts.size(), true);
  std::vector<Group> groups;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    Item& item = plan.items[i];
    if (item.group < 0) continue;
    Group& g = plan.groups[static_cast<size_t>(item.group)];
    if (g.calls.size() == 1 && !swept[i] && !item.prologue && !g.product) {
      item.call = g.calls[0];
      item.group = -1;
    } else {
      item.group = static_cast<int32_t>(groups.size());
      groups.push_back(std::move(g));
    }
  }
  plan.groups = std::move(groups);
}

void find_last_uses(const Trace& t, Plan& plan) {
  std::vector<int32_t> last(t.slots.size(), -1);
  for (size_t i = 0; i < plan.items.size(); ++i)
    for_each_touched_slot(t, plan, plan.items[i],
                          [&](SlotId slot) { last[slot] = static_cast<int32_t>(i); });
  size_t behind = 0;
  for (const Hold& hold : t.holds) {
    while (behind < plan.items.size() && plan.items[behind].at < hold.until) ++behind;
    if (last[hold.slot] >= 0)
      last[hold.slot] = std::max(last[hold.slot], static_cast<int32_t>(behind) - 1);
  }
  for (SlotId s = 0; s < t.slots.size(); ++s)
    if (last[s] >= 0) plan.items[static_cast<size_t>(last[s])].last_uses.push_back(s);
}

}  // namespace

Plan finish_plan(const Trace& t, std::vector<Item> items, std::vector<Group> groups,
                 const PlanOptions& options, Classes& sequence, Classes& shape) {
  Plan plan;
  plan.groups = std::move(groups);
  for (Item& item : items) {
    if (item.group >= 0) {
      const Group& g = plan.groups[static_cast<size_t>(item.group)];
      // Overwritten before anybody looked, or no more than a product.
      if (g.outputs.empty() && g.reductions.empty()) continue;
      if (g.product && g.calls.size() == 1 &&
          !(options.prologues && follows_its_prologue(t, plan, g)))
        continue;
      if (g.product) plan.items.pop_back();
    }
    plan.items.push_back(std::move(item));
  }
  if (options.fuse && options.sweeps) find_sweeps(t, sequence, shape, plan);
  if (options.fuse && options.prologues) find_prologues(t, plan);
  drop_single_calls(plan);
  // Sweeps have moved items.
  for (size_t i = plan.items.size(); i-- > 1;)
    plan.items[i - 1].at = std::min(plan.items[i - 1].at, plan.items[i].at);
  find_last_uses(t, plan);
  find_heirs(t, sequence, plan);
  return plan;
}

}  // namespace grapnel::compiler
