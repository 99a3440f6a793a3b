#include "grapnel/compile/sweeps.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "grapnel/ops/define.h"

namespace grapnel::compiler {

using namespace capture;

bool same_reduction(const Trace& trace, Classes& shape, const Instruction& a,
                    const Instruction& b) {
  const auto &mine = *static_cast<const ReduceAttrs*>(trace.attrs_of(a)),
             &its = *static_cast<const ReduceAttrs*>(trace.attrs_of(b));
  return mine.dims == its.dims && shape.same(trace.inputs_of(a)[0], trace.inputs_of(b)[0]);
}

namespace {

/// How many items a sweep may step over to find its next part.
constexpr int kStepOver = 16;

/// A slot in memory as an item sees it.
struct Touch {
  SlotId slot;
  ValueId value;
  bool write;
};

std::vector<Touch> touches_of(const Trace& t, const Plan& plan, const Item& item) {
  std::vector<Touch> list;
  auto add = [&](ValueId id, bool write) {
    if (id != kNone && !t.values[id].number) list.push_back({t.values[id].slot, id, write});
  };
  if (item.group < 0) {
    for (const ValueId id : t.inputs_of(t.calls[item.call])) add(id, false);
    for (const ValueId id : t.outputs_of(t.calls[item.call])) add(id, true);
    return list;
  }
  const Group& g = plan.groups[static_cast<size_t>(item.group)];
  for (const Group::Input& i : g.inputs) add(i.value, false);
  for (const Group::Output& o : g.outputs) add(o.value, true);
  for (const Group::Reduction& r : g.reductions) add(t.outputs_of(t.calls[r.call])[0], true);
  if (g.product) {
    for (const ValueId id : t.inputs_of(t.calls[g.product.call])) add(id, false);
    add(t.outputs_of(t.calls[g.product.call])[0], true);
  }
  return list;
}

/// One sweep in the making.
class Grower {
 public:
  Grower(const Trace& trace, Classes& sequence, Classes& shape, const Plan& plan)
      : t_(trace), sequence_(sequence), shape_(shape), plan_(plan) {}

  /// Adds the group of an item if it can run in step with those before.
  bool add(const Item& item) {
    if (item.group < 0) return false;
    const Group& g = plan_.groups[static_cast<size_t>(item.group)];
    if (g.reduce == Group::Reduce::columns || g.product) return false;
    const bool first = sweep.parts.empty();
    const bool per_row = !first && !sequence_.same(g.space, sweep.space);
    if (per_row &&
        (results_ == kNone || !sequence_.same(g.space, results_) || !g.reductions.empty()))
      return false;
    if (!cuts_alike(g)) return false;
    std::vector<Group::Input> along_rows;
    if (!first && !(inputs_fit(g, per_row, along_rows) && outputs_fit(item))) return false;
    const bool reads_results = per_row || !along_rows.empty();
    // A result that needs all elements is known only after the last span.
    if (reads_results &&
        t_.values[t_.inputs_of(t_.calls[sweep.reduction])[0]].rank ==
            static_cast<const ReduceAttrs*>(t_.attrs_of(t_.calls[sweep.reduction]))->dims.size())
      return false;

    if (first) sweep.space = g.space;
    sweep.parts.push_back({per_row});
    sweep.whole_rows |= reads_results;
    sweep.along_rows.insert(sweep.along_rows.end(), along_rows.begin(), along_rows.end());
    for (const Group::Reduction& r : g.reductions) {
      const ValueId result = t_.outputs_of(t_.calls[r.call])[0];
      if (sweep.reduction == kNone) sweep.reduction = r.call, results_ = result;
      else sequence_.join(result, results_);  // one element per row, all of them
    }
    for (const Touch& touch : touches_of(t_, plan_, item)) {
      std::vector<Touch>& known = touched_[touch.slot];
      shares_ |= !first && !known.empty() && sequence_.same(touch.value, sweep.space);
      known.push_back(touch);
    }
    return true;
  }

  /// Running its parts together saves a pass over something.
  bool is_worthwhile() const { return sweep.parts.size() > 1 && shares_; }

  Sweep sweep;

 private:
  bool cuts_alike(const Group& g) {
    for (const Group::Reduction& r : g.reductions) {
      const Instruction& c = t_.calls[r.call];
      if (sequence_.same(t_.outputs_of(c)[0], g.space))
        return false;  // rows of one element: nothing tells rows and elements apart
      if (sweep.reduction != kNone && !same_reduction(t_, shape_, t_.calls[sweep.reduction], c))
        return false;
    }
    return true;
  }

  bool inputs_fit(const Group& g, bool per_row, std::vector<Group::Input>& along_rows) {
    for (const Group::Input& in : g.inputs) {
      const auto known = touched_.find(t_.values[in.value].slot);
      if (known == touched_.end()) continue;
      for (const Touch& touch : known->second) {
        if (!touch.write) continue;
        const ValueId own = per_row ? results_ : sweep.space;
        if (same_place(t_, in.value, touch.value) && sequence_.same(in.value, own) &&
            sequence_.same(touch.value, own))
          continue;
        // A result, broadcast by the op or by a view: sizes will tell whether along its row.
        if (per_row || results_ == kNone || !sequence_.same(touch.value, results_) ||
            !t_.values[touch.value].linear)
          return false;
        if (t_.values[in.value].dtype != t_.values[touch.value].dtype) return false;
        along_rows.push_back(in);
      }
    }
    return true;
  }

  /// What is overwritten was touched before for the same element only.
  bool outputs_fit(const Item& item) {
    for (const Touch& touch : touches_of(t_, plan_, item)) {
      if (!touch.write) continue;
      const auto known = touched_.find(touch.slot);
      if (known == touched_.end()) continue;
      for (const Touch& k : known->second)
        if (!same_place(t_, touch.value, k.value) || !sequence_.same(touch.value, k.value))
          return false;
    }
    return true;
  }

  const Trace& t_;
  Classes &sequence_, &shape_;
  const Plan& plan_;
  ValueId results_ = kNone;  ///< the result of a reduction: one element per row
  std::unordered_map<SlotId, std::vector<Touch>> touched_;
  bool shares_ = false;
};

/// Items that others must not notice moving past.
class Passed {
 public:
  void add(const std::vector<Touch>& touches) {
    for (const Touch& touch : touches) {
      bool& written = slots_[touch.slot];
      written |= touch.write;
    }
    empty_ = false;
  }
  bool empty() const { return empty_; }
  bool lets_pass(const std::vector<Touch>& touches) const {
    for (const Touch& touch : touches) {
      const auto known = slots_.find(touch.slot);
      if (known != slots_.end() && (touch.write || known->second)) return false;
    }
    return true;
  }

 private:
  std::unordered_map<SlotId, bool> slots_;  ///< written at all
  bool empty_ = true;
};

/// Whether an item changes its place with no other: see Note [What is seen] in plan.h.
bool stays(const Trace& t, const Plan& plan, const Item& item) {
  const auto writes_seen = [&](uint32_t call) {
    const Instruction& c = t.calls[call];
    if (!c.inplace) return false;
    const Slot& slot = t.slots[t.values[t.outputs_of(c)[0]].slot];
    return slot.live || slot.outside;
  };
  return item.group < 0
             ? t.calls[item.call].op->effect || writes_seen(item.call)
             : std::ranges::any_of(plan.groups[static_cast<size_t>(item.group)].calls, writes_seen);
}

/// Slots that only one sweep touches, always as a whole.
void find_locals(const Trace& t, Classes& sequence, Plan& plan) {
  constexpr int32_t kNobody = -1, kSeveral = -2;
  std::vector<int32_t> owner(t.slots.size(), kNobody);
  std::vector<ValueId> seen(t.slots.size(), kNone);
  std::vector<bool> along_rows(t.values.size());
  for (const Sweep& s : plan.sweeps)
    for (const Group::Input& in : s.along_rows) along_rows[in.value] = true;
  int32_t sweep = -1, left = 0;
  for (const Item& item : plan.items) {
    if (item.sweep >= 0) {
      sweep = item.sweep;
      left = static_cast<int32_t>(plan.sweeps[static_cast<size_t>(sweep)].parts.size());
    }
    const int32_t here = left-- > 0 ? sweep : kSeveral;
    for (const Touch& touch : touches_of(t, plan, item)) {
      const Value& v = t.values[touch.value];
      int32_t& o = owner[touch.slot];
      ValueId& s = seen[touch.slot];
      if (along_rows[touch.value] && !touch.write) {
        if (o != here) o = kSeveral;
        continue;
      }
      const bool alike =
          s == kNone || (t.values[s].dtype == v.dtype && sequence.same(s, touch.value));
      o = v.linear && alike && (o == kNobody || o == here) ? here : kSeveral;
      s = touch.value;
    }
  }
  for (SlotId slot = 0; slot < t.slots.size(); ++slot) {
    if (owner[slot] < 0 || t.slots[slot].live || t.slots[slot].outside) continue;
    Sweep& s = plan.sweeps[static_cast<size_t>(owner[slot])];
    s.locals.push_back({slot, !sequence.same(seen[slot], s.space)});
  }
}

/// Puts the items of a plan in the order in which they will run, parts of sweeps together.
class Arranger {
 public:
  Arranger(const Trace& trace, Classes& sequence, Classes& shape, Plan& plan)
      : t_(trace), sequence_(sequence), shape_(shape), plan_(plan), placed_(plan.items.size()) {}

  /// `items`: in the order of the plan.
  void arrange(const std::vector<size_t>& items) {
    for (size_t at = 0; at < items.size(); ++at) {
      if (placed_[items[at]]) continue;
      Grower grower(t_, sequence_, shape_, plan_);
      std::vector<size_t> before, parts;
      grow(grower, items, at, before, parts);
      if (!grower.is_worthwhile()) {
        place(items[at]);
        continue;
      }
      // Among what runs before there may be sweeps as well.
      arrange(before);
      plan_.items[parts[0]].sweep = static_cast<int32_t>(plan_.sweeps.size());
      grower.sweep.first = static_cast<uint32_t>(order_.size());
      plan_.sweeps.push_back(std::move(grower.sweep));
      for (const size_t i : parts) place(i);
    }
  }

  void finish() {
    std::vector<Item> items;
    for (const size_t i : order_) items.push_back(std::move(plan_.items[i]));
    plan_.items = std::move(items);
  }

 private:
  void place(size_t i) {
    placed_[i] = true;
    order_.push_back(i);
  }

  /// A sweep that begins with item `at` of the list, if one does. Between its parts are items that
  /// can run before all of them, and others that have to wait until after the last.
  void grow(Grower& grower, const std::vector<size_t>& items, size_t at,
            std::vector<size_t>& before, std::vector<size_t>& parts) const {
    const Item& first = plan_.items[items[at]];
    if (!grower.add(first)) return;
    parts.push_back(items[at]);
    Passed sweep, after;
    sweep.add(touches_of(t_, plan_, first));
    bool stay = stays(t_, plan_, first);  // one of the parts does
    int skipped = 0;
    for (size_t next = at + 1; next < items.size() && skipped < kStepOver; ++next) {
      const size_t i = items[next];
      if (placed_[i]) continue;
      const Item& item = plan_.items[i];
      const bool stays_here = stays(t_, plan_, item);
      const std::vector<Touch> touches = touches_of(t_, plan_, item);
      const bool passes = after.lets_pass(touches);
      if (passes && !(stays_here && !after.empty()) && grower.add(item)) {
        parts.push_back(i);
        sweep.add(touches);
        stay |= stays_here;
      } else if (stays_here) {
        break;
      } else if (passes && !stay && sweep.lets_pass(touches)) {
        before.push_back(i);
        ++skipped;
      } else {
        after.add(touches);
        ++skipped;
      }
    }
    // What comes after the last part need not move.
    std::erase_if(before, [&](size_t i) { return i > parts.back(); });
  }

  const Trace& t_;
  Classes &sequence_, &shape_;
  Plan& plan_;
  std::vector<bool> placed_;
  std::vector<size_t> order_;
};

}  // namespace

void find_sweeps(const Trace& trace, Classes& sequence, Classes& shape, Plan& plan) {
  std::vector<size_t> items(plan.items.size());
  std::iota(items.begin(), items.end(), size_t{0});
  Arranger arranger(trace, sequence, shape, plan);
  arranger.arrange(items);
  arranger.finish();
  if (!plan.sweeps.empty()) find_locals(trace, sequence, plan);
}

}  // namespace grapnel::compiler
