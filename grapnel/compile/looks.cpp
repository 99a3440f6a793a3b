#include "grapnel/compile/looks.h"

#include <algorithm>

#include "grapnel/ops/define.h"

namespace grapnel::compile_detail {

using namespace capture;

namespace {

/// Looks that reduce more bytes per element keep their own pass: the registers of the host would
/// not suffice.
constexpr size_t kHeaviest = 8;

class Looks {
 public:
  Looks(const Trace& trace, const std::vector<bool>& skipped, Classes& sequence)
      : t_(trace),
        sequence_(sequence),
        is_look_(trace.calls.size()),
        uses_(trace.slots.size()),
        weight_(trace.slots.size()) {
    for (uint32_t i = 0; i < t_.calls.size(); ++i)
      if (!skipped[i] && t_.calls[i].op->family != Family::view) calls_.push_back(i);
  }

  std::vector<uint32_t> order() {
    find_looks();
    if (std::none_of(calls_.begin(), calls_.end(), [&](uint32_t i) { return is_sum(i); }))
      return std::move(calls_);
    weigh();
    for (const uint32_t i : calls_) is_look_[i] ? take(i) : pass(i);
    for (const Waiting& w : waiting_) leave(w);
    return std::move(order_);
  }

 private:
  struct Use {
    uint32_t call;
    ValueId value;
    bool write;
  };
  /// Looks that wait together, each for something that one before it made.
  struct Waiting {
    uint32_t host;
    std::vector<uint32_t> calls;
    std::vector<SlotId> reads, writes;
  };

  const Value& value(ValueId id) const { return t_.values[id]; }
  bool is_tensor(ValueId id) const { return id != kNone && !value(id).number; }
  bool is_sum(uint32_t i) const { return is_look_[i] && !t_.calls[i].op->elementwise; }
  template <class Fn>
  void for_operands(uint32_t i, Fn&& fn) const {
    for (const ValueId id : t_.inputs_of(t_.calls[i]))
      if (is_tensor(id)) fn(id);
  }
  template <class Fn>
  void for_results(uint32_t i, Fn&& fn) const {
    for (const ValueId id : t_.outputs_of(t_.calls[i]))
      if (id != kNone) fn(id);
  }

  /// From the last call to the first, so that who reads a result is known.
  void find_looks() {
    std::vector<bool> only_looks(t_.slots.size(), true);  // touch the slot later
    for (size_t k = calls_.size(); k-- > 0;) {
      const uint32_t i = calls_[k];
      is_look_[i] = may_wait(i);
      for_results(i, [&](ValueId id) { is_look_[i] = is_look_[i] && only_looks[value(id).slot]; });
      const auto touch = [&](ValueId id, bool write) {
        uses_[value(id).slot].push_back({i, id, write});
        if (!is_look_[i]) only_looks[value(id).slot] = false;
      };
      for_operands(i, [&](ValueId id) { touch(id, false); });
      for_results(i, [&](ValueId id) { touch(id, true); });
    }
    for (std::vector<Use>& uses : uses_) std::reverse(uses.begin(), uses.end());
  }

  /// How much is reduced of each slot: the bytes that a reduction takes per element, all in all.
  void weigh() {
    std::vector<SlotId> source(t_.slots.size(), kNone);  // that a look's result is computed from
    for (const uint32_t i : calls_) {
      if (!is_look_[i] || t_.calls[i].inputs == 0) continue;
      const ValueId in = t_.inputs_of(t_.calls[i])[0];
      if (!is_tensor(in)) continue;
      SlotId from = value(in).slot;
      if (source[from] != kNone) from = source[from];
      source[value(t_.outputs_of(t_.calls[i])[0]).slot] = from;
      if (is_sum(i)) weight_[from] += element_size(dtype_of(compute_type(value(in).dtype)));
    }
  }

  /// Reductions of everything, what is computed for them element by element, and what is done with
  /// their results, if those are single numbers.
  bool may_wait(uint32_t i) const {
    const Instruction& c = t_.calls[i];
    if (c.op->effect || c.op->random || c.outputs != 1) return false;
    const Value& out = value(t_.outputs_of(c)[0]);
    if (c.op->family == Family::reduction)
      return static_cast<const ReduceAttrs*>(t_.attrs_of(c))->dims.size() ==
             value(t_.inputs_of(c)[0]).rank;
    if (!c.op->elementwise) return false;
    return out.rank == 0 || !(c.inplace || t_.slots[out.slot].live || t_.slots[out.slot].outside);
  }

  void take(uint32_t i) {
    const auto needed = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](const Waiting& w) { return depends(i, w); });
    if (needed == waiting_.end()) {
      const uint32_t host = host_of(i);
      if (host == kNone) return order_.push_back(i);
      waiting_.push_back({host, {}, {value(t_.inputs_of(t_.calls[i])[0]).slot}, {}});
      if (keeps_others(i, waiting_.back())) return waiting_.pop_back(), order_.push_back(i);
      return add(i, waiting_.back());
    }
    const bool several =
        std::any_of(needed + 1, waiting_.end(), [&](const Waiting& w) { return depends(i, w); });
    if (several || keeps_others(i, *needed)) pass(i);
    else add(i, *needed);
  }

  void add(uint32_t i, Waiting& w) {
    w.calls.push_back(i);
    for_operands(i, [&](ValueId id) { w.reads.push_back(value(id).slot); });
    for_results(i, [&](ValueId id) { w.writes.push_back(value(id).slot); });
  }

  void pass(uint32_t i) {
    const bool effect = t_.calls[i].op->effect;
    std::erase_if(waiting_, [&](const Waiting& w) {
      if (!effect && w.host != i && !depends(i, w)) return false;
      leave(w);
      return true;
    });
    order_.push_back(i);
  }

  void leave(const Waiting& w) { order_.insert(order_.end(), w.calls.begin(), w.calls.end()); }

  static bool has(const std::vector<SlotId>& slots, SlotId slot) {
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
  }
  /// Whether call i has to run behind those that wait.
  bool depends(uint32_t i, const Waiting& w) const {
    bool found = false;
    for_operands(i, [&](ValueId id) { found |= has(w.writes, value(id).slot); });
    for_results(i, [&](ValueId id) {
      found |= has(w.writes, value(id).slot) || has(w.reads, value(id).slot);
    });
    return found;
  }
  /// Whether memory that could be given back would have to wait as well.
  bool keeps_others(uint32_t i, const Waiting& w) const {
    bool found = false;
    for_operands(i, [&](ValueId id) {
      const SlotId slot = value(id).slot;
      found |= value(id).rank > 0 && !t_.slots[slot].live && !t_.slots[slot].outside &&
               !has(w.reads, slot) && !has(w.writes, slot);
    });
    return found;
  }

  /// The elementwise call behind call i that passes over what i reads, or kNone: before somebody
  /// overwrites it in another way, and before code that we do not see.
  uint32_t host_of(uint32_t i) const {
    if (t_.calls[i].inputs == 0) return kNone;
    const ValueId source = t_.inputs_of(t_.calls[i])[0];
    if (!is_tensor(source) || value(source).rank == 0 || weight_[value(source).slot] > kHeaviest)
      return kNone;
    for (const Use& use : uses_[value(source).slot]) {
      if (use.call <= i || is_look_[use.call]) continue;
      const Instruction& c = t_.calls[use.call];
      if (c.op->elementwise && same_place(t_, use.value, source) &&
          sequence_.same(t_.outputs_of(c)[0], source))
        return use.call;
      if (use.write) return kNone;
    }
    return kNone;
  }

  const Trace& t_;
  Classes& sequence_;
  std::vector<uint32_t> calls_, order_;
  std::vector<bool> is_look_;
  std::vector<std::vector<Use>> uses_;  ///< of each slot, in the order of the trace
  std::vector<Waiting> waiting_;
  std::vector<size_t> weight_;
};

}  // namespace

std::vector<uint32_t> with_looks_at_their_hosts(const Trace& trace,
                                                const std::vector<bool>& skipped,
                                                Classes& sequence) {
  return Looks(trace, skipped, sequence).order();
}

}  // namespace grapnel::compile_detail
