#include "grapnel/compile/prologues.h"

#include <algorithm>

#include "grapnel/compile/sweeps.h"

namespace grapnel::compiler {

using namespace capture;

uint32_t product_at(const Plan& plan, size_t i) {
  const Item& item = plan.items[i];
  return item.group < 0 ? item.call : plan.groups[static_cast<size_t>(item.group)].product.call;
}

namespace {

class Finder {
 public:
  Finder(const Trace& trace, const Plan& plan) : t_(trace), plan_(plan), last_(trace.slots.size()) {
    for (size_t i = 0; i < plan.items.size(); ++i)
      for_each_touched_slot(t_, plan, plan.items[i], [&](SlotId slot) { last_[slot] = i; });
  }

  /// Whether item i does nothing but prepare an operand of the product behind it.
  bool prepares_product(size_t i) const {
    const Item& item = plan_.items[i];
    if (item.group < 0 || i + 1 == plan_.items.size()) return false;
    const Group& g = plan_.groups[static_cast<size_t>(item.group)];
    if (g.product || !g.reductions.empty() || g.outputs.size() != 1) return false;
    const uint32_t call = product_at(plan_, i + 1);
    if (call == kNone) return false;
    const Instruction& c = t_.calls[call];
    const ProductForm form = c.op->product_form(t_.attrs_of(c));
    // The addend of a product by itself is added by the op, which wants all its operands.
    if (!form || (plan_.items[i + 1].group < 0 && has_addend(c, form))) return false;
    return reads_once(g.outputs[0].value, c, form, i + 1) && !overwrites_inputs(g, i + 1);
  }

 private:
  bool has_addend(const Instruction& c, const ProductForm& form) const {
    return form.addend >= 0 && t_.inputs_of(c)[static_cast<size_t>(form.addend)] != kNone;
  }

  /// Nobody but the product sees what the group makes, and it sees it as it was made.
  bool reads_once(ValueId made, const Instruction& c, const ProductForm& form,
                  size_t product) const {
    const auto operands = t_.inputs_of(c);
    const ValueId read = operands[static_cast<size_t>(form.operand)];
    const SlotId slot = t_.values[made].slot;
    if (t_.values[read].slot != slot || !same_place(t_, made, read) || !t_.values[read].linear ||
        !t_.values[made].linear)
      return false;
    if (t_.slots[slot].live || t_.slots[slot].outside || last_[slot] != product) return false;
    for (size_t k = 0; k < operands.size(); ++k)
      if (static_cast<int>(k) != form.operand && operands[k] != kNone &&
          t_.values[operands[k]].slot == slot)
        return false;
    if (plan_.items[product].group < 0) return true;
    const Group& behind = plan_.groups[static_cast<size_t>(plan_.items[product].group)];
    auto is_slot = [&](ValueId id) { return t_.values[id].slot == slot; };
    return std::none_of(behind.inputs.begin(), behind.inputs.end(),
                        [&](const Group::Input& in) { return is_slot(in.value); }) &&
           std::none_of(behind.outputs.begin(), behind.outputs.end(),
                        [&](const Group::Output& o) { return is_slot(o.value); });
  }

  /// What the group reads for a later tile must not be overwritten for an earlier one.
  bool overwrites_inputs(const Group& g, size_t product) const {
    auto is_read = [&](SlotId slot) {
      return std::any_of(g.inputs.begin(), g.inputs.end(),
                         [&](const Group::Input& in) { return t_.values[in.value].slot == slot; });
    };
    if (plan_.items[product].group < 0) return false;
    const Group& behind = plan_.groups[static_cast<size_t>(plan_.items[product].group)];
    return is_read(behind.product.memory) ||
           std::any_of(behind.outputs.begin(), behind.outputs.end(),
                       [&](const Group::Output& o) { return is_read(t_.values[o.value].slot); });
  }

  const Trace& t_;
  const Plan& plan_;
  std::vector<size_t> last_;  ///< the last item that touches a slot
};

}  // namespace

void find_prologues(const Trace& trace, Plan& plan) {
  std::vector<bool> swept(plan.items.size());
  for (const Sweep& s : plan.sweeps) std::fill_n(swept.begin() + s.first, s.parts.size(), true);
  const Finder finder(trace, plan);
  for (size_t i = 0; i < plan.items.size(); ++i)
    if (!swept[i]) plan.items[i].prologue = finder.prepares_product(i);
}

}  // namespace grapnel::compiler
