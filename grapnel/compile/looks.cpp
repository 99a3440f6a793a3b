#include "grapnel/compile/looks.h"

#include <algorithm>
#include <unordered_map>

#include "grapnel/ops/define.h"

namespace grapnel::compiler {

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
        weight_(trace.slots.size()),
        touched_(trace.slots.size()) {
    for (uint32_t i = 0; i < t_.calls.size(); ++i)
      if (!skipped[i] && t_.calls[i].op->family != Family::view) calls_.push_back(i);
  }

  std::vector<uint32_t> order() {
    find_looks();
    if (std::none_of(calls_.begin(), calls_.end(), [&](uint32_t i) { return is_sum(i); }))
      return std::move(calls_);
    weigh();
    for (const uint32_t i : calls_) is_look_[i] ? take(i) : pass(i);
    leave_all();
    return std::move(order_);
  }

 private:
  struct Use {
    uint32_t call;
    bool write;
  };
  /// Looks that wait together, each but the first for something that one before it made.
  using Bundle = std::vector<uint32_t>;
  struct Touch {
    uint32_t bundle;
    bool write;
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
        uses_[value(id).slot].push_back({i, write});
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
    if (c.inplace && (t_.slots[out.slot].live || t_.slots[out.slot].outside)) return false;
    if (c.op->family == Family::reduction)
      return static_cast<const ReduceAttrs*>(t_.attrs_of(c))->dims.size() ==
             value(t_.inputs_of(c)[0]).rank;
    if (!c.op->elementwise) return false;
    return out.rank == 0 || !(t_.slots[out.slot].live || t_.slots[out.slot].outside);
  }

  void take(uint32_t i) {
    const std::vector<uint32_t> needed = needed_by(i);
    if (needed.size() > 1) return pass(i);
    if (needed.size() == 1) return keeps_others(i, needed[0]) ? pass(i) : add(i, needed[0]);
    const uint32_t host = host_of(i);
    if (host == kNone || keeps_others(i, kNone)) return order_.push_back(i);
    hosted_[host].push_back(static_cast<uint32_t>(waiting_.size()));
    waiting_.emplace_back();
    add(i, static_cast<uint32_t>(waiting_.size()) - 1);
  }

  void add(uint32_t i, uint32_t bundle) {
    waiting_[bundle].push_back(i);
    for_operands(i, [&](ValueId id) { touched_[value(id).slot].push_back({bundle, false}); });
    for_results(i, [&](ValueId id) { touched_[value(id).slot].push_back({bundle, true}); });
  }

  void pass(uint32_t i) {
    for (const uint32_t bundle : needed_by(i)) leave(bundle);
    if (const auto guests = hosted_.find(i); guests != hosted_.end())
      for (const uint32_t bundle : guests->second) leave(bundle);
    if (t_.calls[i].op->effect) leave_all();
    order_.push_back(i);
  }

  void leave(uint32_t bundle) {
    for (const uint32_t i : waiting_[bundle]) {
      order_.push_back(i);
      const auto forget = [&](ValueId id) {
        std::erase_if(touched_[value(id).slot], [&](const Touch& t) { return t.bundle == bundle; });
      };
      for_operands(i, forget);
      for_results(i, forget);
    }
    waiting_[bundle].clear();
  }
  void leave_all() {
    for (uint32_t bundle = 0; bundle < waiting_.size(); ++bundle) leave(bundle);
    waiting_.clear();
    hosted_.clear();
  }

  /// The bundles that call i has to follow.
  std::vector<uint32_t> needed_by(uint32_t i) const {
    std::vector<uint32_t> bundles;
    const auto need = [&](ValueId id, bool write) {
      for (const Touch& t : touched_[value(id).slot])
        if (write || t.write) bundles.push_back(t.bundle);
    };
    for_operands(i, [&](ValueId id) { need(id, false); });
    for_results(i, [&](ValueId id) { need(id, true); });
    std::sort(bundles.begin(), bundles.end());
    bundles.erase(std::unique(bundles.begin(), bundles.end()), bundles.end());
    return bundles;
  }
  /// Whether memory that could be given back would have to wait as well. What the first call of a
  /// bundle reads first has to be there for the host.
  bool keeps_others(uint32_t i, uint32_t bundle) const {
    const SlotId first = bundle == kNone ? value(t_.inputs_of(t_.calls[i])[0]).slot : kNone;
    bool found = false;
    for_operands(i, [&](ValueId id) {
      const SlotId slot = value(id).slot;
      const bool waits = std::any_of(touched_[slot].begin(), touched_[slot].end(),
                                     [&](const Touch& t) { return t.bundle == bundle; });
      found |= value(id).rank > 0 && !t_.slots[slot].live && !t_.slots[slot].outside && !waits &&
               slot != first;
    });
    return found;
  }

  /// The elementwise call behind call i that passes over what i reads before somebody overwrites it
  /// in another way, or kNone.
  uint32_t host_of(uint32_t i) const {
    if (t_.calls[i].inputs == 0) return kNone;
    const ValueId source = t_.inputs_of(t_.calls[i])[0];
    if (!is_tensor(source) || value(source).rank == 0 || weight_[value(source).slot] > kHeaviest)
      return kNone;
    for (const Use& use : uses_[value(source).slot]) {
      if (use.call <= i || is_look_[use.call]) continue;
      const Instruction& c = t_.calls[use.call];
      if (c.op->elementwise && sequence_.same(t_.outputs_of(c)[0], source)) return use.call;
      if (use.write) return kNone;
    }
    return kNone;
  }

  const Trace& t_;
  Classes& sequence_;
  std::vector<uint32_t> calls_, order_;
  std::vector<bool> is_look_;
  std::vector<std::vector<Use>> uses_;  ///< of each slot, in the order of the trace
  std::vector<size_t> weight_;
  std::vector<Bundle> waiting_;                                 ///< empty: has left
  std::unordered_map<uint32_t, std::vector<uint32_t>> hosted_;  ///< bundles that wait for a call
  std::vector<std::vector<Touch>> touched_;                     ///< each slot, by bundles that wait
};

}  // namespace

std::vector<uint32_t> with_looks_at_their_hosts(const Trace& trace,
                                                const std::vector<bool>& skipped,
                                                Classes& sequence) {
  return Looks(trace, skipped, sequence).order();
}

}  // namespace grapnel::compiler
