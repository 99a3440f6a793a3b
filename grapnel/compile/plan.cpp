/// Placing calls, one by one, into groups or on their own.
#include "grapnel/compile/plan.h"

#include <algorithm>
#include <utility>

#include "grapnel/compile/group_builder.h"
#include "grapnel/compile/looks.h"
#include "grapnel/compile/plan_finish.h"
#include "grapnel/compile/sweeps.h"
#include "grapnel/ops/define.h"

namespace grapnel::compiler {

using namespace capture;

bool same_place(const Trace& trace, ValueId a, ValueId b) {
  const Value &x = trace.values[a], &y = trace.values[b];
  return a == b || (x.linear && y.linear && x.dtype == y.dtype);
}

namespace {

/// How far back a call looks for a group to join.
constexpr int32_t kLookBack = 24;
constexpr uint32_t kSeveral = kNone - 1;

class Planner {
 public:
  Planner(const Trace& trace, const std::vector<bool>& skipped, PlanOptions options)
      : t_(trace),
        skipped_(skipped),
        options_(options),
        sequence_(trace.values.size()),
        shape_(trace.values.size()),
        slots_(trace.slots.size()),
        reader_(trace.slots.size(), kNone) {}

  Plan make() {
    find_classes();
    find_readers();
    if (options_.fuse && options_.looks) {
      for (const uint32_t i : with_looks_at_their_hosts(t_, skipped_, sequence_)) place(i);
    } else {
      for (uint32_t i = 0; i < t_.calls.size(); ++i)
        if (!skipped_[i] && t_.calls[i].op->family != Family::view) place(i);
    }
    return finish();
  }

 private:
  struct SlotState {
    int32_t write = -1;  ///< last item that wrote it
    int32_t read = -1;   ///< last item that read it from memory
    /// How `write` wrote it, if that was a group that has it in a register.
    ValueId written = kNone;
  };

  /// See Note [Waiting calls].
  struct Waiting {
    uint32_t call;
    ValueId result;
    ValueId source;  ///< the tensor in memory that it is made of
  };

  const Value& value(ValueId id) const { return t_.values[id]; }
  bool is_tensor(ValueId id) const { return id != kNone && !value(id).number; }
  bool is_full(const Instruction& c, size_t operand) const {
    return t_.sizes_of(value(t_.inputs_of(c)[operand])) == t_.sizes_of(value(t_.outputs_of(c)[0]));
  }
  bool same_place(ValueId a, ValueId b) const { return compiler::same_place(t_, a, b); }

  void find_classes() {
    for (const Instruction& c : t_.calls) {
      const auto inputs = t_.inputs_of(c), outputs = t_.outputs_of(c);
      if (c.op->family == Family::view) {
        for (const ValueId out : outputs)
          if (value(out).linear && value(inputs[0]).linear) sequence_.join(out, inputs[0]);
      } else if (c.op->elementwise) {
        for (size_t k = 0; k < inputs.size(); ++k) {
          if (!is_tensor(inputs[k]) || !is_full(c, k)) continue;
          sequence_.join(inputs[k], outputs[0]);
          shape_.join(inputs[k], outputs[0]);
        }
      }
    }
  }

  void find_readers() {
    std::vector<bool> written(t_.slots.size());
    for (uint32_t i = 0; i < t_.calls.size(); ++i) {
      const Instruction& c = t_.calls[i];
      if (skipped_[i] || c.op->family == Family::view) continue;
      for (const ValueId id : t_.inputs_of(c)) {
        if (!is_tensor(id)) continue;
        uint32_t& reader = reader_[value(id).slot];
        reader = reader == kNone || reader == i ? i : kSeveral;
      }
      for (const ValueId id : t_.outputs_of(c)) {
        if (id == kNone) continue;
        const SlotId slot = value(id).slot;
        if (written[slot]) reader_[slot] = kSeveral;
        written[slot] = true;
      }
    }
    for (const Hold& hold : t_.holds) reader_[hold.slot] = kSeveral;
    for (SlotId s = 0; s < slots_.size(); ++s)
      if (is_seen(s)) reader_[s] = kSeveral;
  }

  void place(uint32_t i) {
    const Instruction& c = t_.calls[i];
    const bool joins = options_.fuse && c.op->elementwise && !reads_its_target_elsewhere(c);
    if (!waiting_.empty()) end_waits_before(c, joins);
    if (joins && can_wait(i)) return;
    // A look that has waited stands where it is placed.
    at_ = std::max(i, placed_);
    placed_ = std::max(i + 1, placed_);
    if (joins) {
      place_elementwise(i);
    } else if (const Group::Reduce kind = options_.fuse && c.op->family == Family::reduction
                                              ? reduce_kind(c)
                                              : Group::Reduce::none;
               kind != Group::Reduce::none) {
      GroupBuilder* b = find_group(c, kind);
      // Alone, sums of columns are better left to their own kernel.
      if (!b && kind == Group::Reduce::rows) b = &open_group(t_.inputs_of(c)[0]);
      if (b) add_reduction(*b, i, kind);
      else add_call(i);
    } else if (const ProductForm form =
                   options_.fuse && options_.epilogues ? product_of(c) : ProductForm()) {
      add_product(i, form);
    } else {
      add_call(i);
    }
  }

  void place_elementwise(uint32_t i) {
    const Instruction& c = t_.calls[i];
    GroupBuilder* const found = find_group(c, Group::Reduce::none);
    GroupBuilder& b = found ? *found : open_group(t_.outputs_of(c)[0]);
    add_awaited(b, c);
    add_elementwise(b, i);
  }

  /// See Note [Waiting calls]: if the call is one, it waits from now on.
  bool can_wait(uint32_t i) {
    const Instruction& c = t_.calls[i];
    const ValueId out = t_.outputs_of(c)[0];
    const uint32_t reader = reader_[value(out).slot];
    if (c.inplace || reader >= t_.calls.size() || !joins_whole(t_.calls[reader], out)) return false;
    const auto inputs = t_.inputs_of(c);
    ValueId source = kNone;
    for (size_t k = first_operand(c); k < inputs.size(); ++k) {
      if (!is_tensor(inputs[k])) continue;
      if (!is_full(c, k) || (source != kNone && source != inputs[k])) return false;
      source = inputs[k];
    }
    if (source == kNone) return false;
    const ValueId made_of = source_of(source);
    if (element_size(value(out).dtype) < element_size(value(made_of).dtype)) return false;
    if (made_of == source) {
      const GroupBuilder* const b = find_group(c, Group::Reduce::none);
      if (!b || b->item + 1 == static_cast<int32_t>(items_.size())) return false;
      const GroupBuilder::Write* const w = b->written(value(source).slot);
      if (w && !w->needed) return false;
    }
    waiting_.push_back({i, out, made_of});
    return true;
  }
  /// Whether an elementwise call reads a value as it is, element by element.
  bool joins_whole(const Instruction& c, ValueId operand) const {
    if (!c.op->elementwise) return false;
    const auto inputs = t_.inputs_of(c);
    for (size_t k = 0; k < inputs.size(); ++k)
      if (is_tensor(inputs[k]) && value(inputs[k]).slot == value(operand).slot &&
          (inputs[k] != operand || !is_full(c, k)))
        return false;
    return true;
  }
  /// What has to be in memory for a value to be there: itself, unless the call that makes it waits.
  ValueId source_of(ValueId id) const {
    for (const Waiting& w : waiting_)
      if (w.result == id) return w.source;
    return id;
  }
  /// Adds the calls that wait for `c`, in their order.
  void add_awaited(GroupBuilder& b, const Instruction& c) {
    for (const ValueId id : t_.inputs_of(c)) {
      const auto w = std::ranges::find(waiting_, id, &Waiting::result);
      if (w == waiting_.end()) continue;
      const uint32_t call = w->call;
      waiting_.erase(w);
      add_awaited(b, t_.calls[call]);
      add_elementwise(b, call);
    }
  }
  /// Nobody waits past a call that overwrites what he reads, or needs his result in memory.
  void end_waits_before(const Instruction& c, bool joins) {
    const auto inputs = t_.inputs_of(c), outputs = t_.outputs_of(c);
    const bool ends = std::ranges::any_of(waiting_, [&](const Waiting& w) {
      return c.op->effect || (!joins && std::ranges::find(inputs, w.result) != inputs.end()) ||
             std::ranges::any_of(outputs, [&](ValueId out) {
               return out != kNone && value(out).slot == value(w.source).slot;
             });
    });
    if (!ends) return;
    for (const Waiting& w : std::exchange(waiting_, {})) place_elementwise(w.call);
  }

  ProductForm product_of(const Instruction& c) const {
    const ProductForm form = c.op->product_form(t_.attrs_of(c));
    return form && value(t_.outputs_of(c)[0]).linear ? form : ProductForm();
  }

  /// x.add_(x.t()): no order of elements makes this right without a copy.
  bool reads_its_target_elsewhere(const Instruction& c) const {
    if (!c.inplace) return false;
    const auto inputs = t_.inputs_of(c);
    for (size_t k = 1; k < inputs.size(); ++k)
      if (is_tensor(inputs[k]) && value(inputs[k]).slot == value(inputs[0]).slot &&
          !same_place(inputs[k], inputs[0]))
        return true;
    return false;
  }

  Group::Reduce reduce_kind(const Instruction& c) const {
    const Shape& dims = static_cast<const ReduceAttrs*>(t_.attrs_of(c))->dims;
    const int rank = value(t_.inputs_of(c)[0]).rank;
    auto run_from = [&](int first) {
      for (int i = 0; i < dims.size(); ++i)
        if (dims[i] != first + i) return false;
      return true;
    };
    if (dims.empty()) return Group::Reduce::none;
    if (run_from(rank - dims.size())) return Group::Reduce::rows;
    return run_from(0) ? Group::Reduce::columns : Group::Reduce::none;
  }

  bool is_seen(SlotId slot) const { return t_.slots[slot].live || t_.slots[slot].outside; }
  bool writes_seen(const Instruction& c) const {
    return c.inplace && is_seen(value(t_.outputs_of(c)[0]).slot);
  }

  GroupBuilder* find_group(const Instruction& c, Group::Reduce reduction) {
    const auto last = static_cast<int32_t>(items_.size()) - 1;
    const ValueId space =
        reduction != Group::Reduce::none ? t_.inputs_of(c)[0] : t_.outputs_of(c)[0];
    // See Note [What is seen].
    const int32_t back = writes_seen(c) ? 1 : kLookBack;
    for (int32_t g = last; g > barrier_ && g > last - back; --g) {
      if (items_[static_cast<size_t>(g)].group < 0) continue;
      GroupBuilder& b = building_[static_cast<size_t>(items_[static_cast<size_t>(g)].group)];
      if (!sequence_.same(b.group().space, space) || b.is_full()) continue;
      if (!(reduction == Group::Reduce::none ? fits(b, c, g == last) : fits(b, c, reduction)))
        continue;
      if (b.group().product && !fits_tiles(c, reduction)) {
        // A sum of columns by itself costs less than what the product saves; anything else is
        // better off with the group.
        if (reduction == Group::Reduce::columns) continue;
        detach_product(b);
      }
      return &b;
    }
    return nullptr;
  }

  /// See Note [Epilogues].
  bool fits_tiles(const Instruction& c, Group::Reduce reduction) const {
    return reduction == Group::Reduce::none && !t_.slots[value(t_.outputs_of(c)[0]).slot].outside;
  }

  /// Whether the operands of a call can be read in a group; `related`: one of them is there
  /// already.
  bool operands_fit(const GroupBuilder& b, const Instruction& c, bool all_full, bool& related) {
    const auto inputs = t_.inputs_of(c);
    for (size_t k = first_operand(c); k < inputs.size(); ++k) {
      if (!is_tensor(inputs[k])) continue;
      const ValueId id = source_of(inputs[k]);
      const SlotState& s = slots_[value(id).slot];
      if (s.write > b.item) return false;
      if (s.write == b.item) {
        if (s.written == kNone || !(all_full || is_full(c, k)) || !same_place(id, s.written))
          return false;
        related = true;
      } else {
        related |= b.knows(id);
      }
    }
    return true;
  }

  bool fits(const GroupBuilder& b, const Instruction& c, Group::Reduce kind) {
    bool related = false;
    // A reduction of another kind walks the elements in another order.
    return operands_fit(b, c, true, related) && related &&
           (b.group().reduce == Group::Reduce::none ||
            (b.group().reduce == kind &&
             same_reduction(t_, shape_, t_.calls[b.group().reductions[0].call], c)));
  }

  /// Right after a group, a call over the same sequence joins it even if they share no operand:
  /// something later brings both together, as an optimiser's averages and parameters are.
  bool fits(const GroupBuilder& b, const Instruction& c, bool related) {
    if (!operands_fit(b, c, false, related) || !related) return false;
    const ValueId w = t_.outputs_of(c)[0];
    const SlotId target = value(w).slot;
    const SlotState& s = slots_[target];
    if (s.write > b.item || s.read > b.item) return false;
    if (s.write == b.item && (s.written == kNone || !same_place(w, s.written))) return false;
    for (const GroupBuilder::Read& r : b.reads())
      if (r.slot == target && (r.anywhere || !same_place(w, r.value))) return false;
    return true;
  }

  GroupBuilder& open_group(ValueId space) {
    Item item;
    item.at = at_;
    item.group = static_cast<int32_t>(building_.size());
    building_.emplace_back(t_, shape_, static_cast<int32_t>(items_.size()), space);
    items_.push_back(std::move(item));
    return building_.back();
  }

  void add_elementwise(GroupBuilder& b, uint32_t i) {
    const size_t known = b.reads().size();
    b.add_elementwise(i);
    for (size_t k = known; k < b.reads().size(); ++k) note_read(b.reads()[k].slot, b.item);
    const ValueId out = t_.outputs_of(t_.calls[i])[0];
    note_write(value(out).slot, b.item, out);
  }

  /// Two items: the call, and behind it the group that takes it in if something follows that runs
  /// on tiles.
  void add_product(uint32_t i, const ProductForm& form) {
    const ValueId out = t_.outputs_of(t_.calls[i])[0];
    Item call;
    call.at = at_;
    call.call = i;
    last_call_ = static_cast<int32_t>(items_.size());
    items_.push_back(std::move(call));
    GroupBuilder& b = open_group(out);
    b.add_product(i, form);
    for (const GroupBuilder::Read& r : b.reads())
      note_read(r.slot, r.anywhere ? last_call_ : b.item);
    note_write(value(out).slot, b.item, out);
  }

  /// The product is a call of its own again, and the group reads it from memory.
  void detach_product(GroupBuilder& b) {
    const SlotId slot = value(t_.outputs_of(t_.calls[b.group().product.call])[0]).slot;
    b.forget_product();
    SlotState& s = slots_[slot];
    s.read = std::max(s.read, b.item);
    if (s.write == b.item && !b.written(slot)) s.write = b.item - 1, s.written = kNone;
  }

  void add_reduction(GroupBuilder& b, uint32_t i, Group::Reduce kind) {
    const size_t known = b.reads().size();
    b.add_reduction(i, kind);
    for (size_t k = known; k < b.reads().size(); ++k) note_read(b.reads()[k].slot, b.item);
    note_write(value(t_.outputs_of(t_.calls[i])[0]).slot, b.item, kNone);
  }

  void add_call(uint32_t i) {
    const Instruction& c = t_.calls[i];
    const auto item = static_cast<int32_t>(items_.size());
    Item it;
    it.at = at_;
    it.call = i;
    items_.push_back(std::move(it));
    last_call_ = item;
    for (const ValueId id : t_.inputs_of(c))
      if (is_tensor(id)) note_read(value(id).slot, item);
    for (const ValueId id : t_.outputs_of(c))
      if (id != kNone) note_write(value(id).slot, item, kNone);
    if (c.op->effect) {
      // It may look at anything that is visible from outside, and change it.
      barrier_ = item;
      for (SlotId s = 0; s < slots_.size(); ++s)
        if (is_seen(s)) note_read(s, item);
    }
  }

  void note_read(SlotId slot, int32_t item) {
    SlotState& s = slots_[slot];
    s.read = std::max(s.read, item);
    if (s.write != item) need(slot);
  }
  /// What the last writer left in the slot has to be in memory.
  void need(SlotId slot) {
    const SlotState& s = slots_[slot];
    if (s.written == kNone || s.write < 0) return;
    building_[static_cast<size_t>(items_[static_cast<size_t>(s.write)].group)].need(slot);
  }
  void note_write(SlotId slot, int32_t item, ValueId written) {
    SlotState& s = slots_[slot];
    // A write that does not replace all of what a group wrote leaves the rest to be seen, and one
    // that is not reached leaves all of it.
    if (s.write >= 0 && s.write != item &&
        (is_seen(slot) || written == kNone || s.written == kNone ||
         !same_place(written, s.written)))
      need(slot);
    s.write = item;
    s.written = written;
  }

  Plan finish() {
    for (SlotId s = 0; s < slots_.size(); ++s)
      if (is_seen(s)) need(s);
    std::vector<Group> groups;
    for (GroupBuilder& b : building_) groups.push_back(b.finish());
    return finish_plan(t_, std::move(items_), std::move(groups), options_, sequence_, shape_);
  }

  const Trace& t_;
  const std::vector<bool>& skipped_;
  const PlanOptions options_;
  Classes sequence_, shape_;
  std::vector<SlotState> slots_;
  /// Of slots that only the trace sees and writes once: the call that reads them; kNone if there is
  /// none.
  std::vector<uint32_t> reader_;
  std::vector<Waiting> waiting_;  ///< in the order of the trace
  std::vector<Item> items_;
  std::vector<GroupBuilder> building_;
  int32_t last_call_ = -1;
  uint32_t at_ = 0, placed_ = 0;  ///< Item::at of what is being placed; behind all that was
  int32_t barrier_ = -1;          ///< the last call with effects; nothing moves across it
};

}  // namespace

Plan make_plan(const Trace& trace, const std::vector<bool>& skipped, PlanOptions options) {
  return Planner(trace, skipped, options).make();
}

}  // namespace grapnel::compiler
