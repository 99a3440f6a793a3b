#include "grapnel/compile/plan.h"

#include <algorithm>
#include <numeric>

#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::compile_detail {

using namespace capture;
using codegen::BlockProgram;

namespace {

/// Larger programs compile slowly and run out of registers.
constexpr size_t kMostSteps = 64;
constexpr size_t kMostInputs = 24;
constexpr size_t kMostOutputs = 16;
/// How far back a call looks for a group to join.
constexpr int32_t kLookBack = 24;

/// Registers while a program is being built; numbered as BlockProgram wants them at the end.
constexpr int32_t kScalar = 1 << 20, kStep = 1 << 21;

/// Sets of values that are alike in some way.
class Classes {
 public:
  explicit Classes(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0u); }
  uint32_t find(uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(uint32_t a, uint32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<uint32_t> parent_;
};

/// Elementwise without a formula: the values move, or change type.
bool is_copy(const Op* op) { return op->elementwise && op->family != Family::pointwise; }

class Planner {
 public:
  Planner(const Trace& trace, const std::vector<bool>& skipped, bool fuse)
      : t_(trace), skipped_(skipped), fuse_(fuse), sequence_(trace.values.size()), shape_(trace.values.size()), slots_(trace.slots.size()) {}

  Plan make() {
    find_classes();
    for (uint32_t i = 0; i < t_.calls.size(); ++i)
      if (!skipped_[i] && t_.calls[i].op->family != Family::view) place(i);
    return finish();
  }

 private:
  struct SlotState {
    int32_t write = -1;        ///< last item that wrote it
    int32_t read = -1;         ///< last item that read it from memory
    ValueId written = kNone;   ///< how `write` wrote it, if that was a group
    int32_t reg = -1;          ///< where that group has it
    Compute rep = Compute::F32;
  };
  struct Read {
    SlotId slot;
    ValueId value;
  };
  struct Write {
    SlotId slot;
    ValueId value;
    int32_t reg;
    bool needed;
  };
  struct KnownInput {
    ValueId value;
    uint32_t shape;
    Compute compute;
  };
  struct Converted {
    int32_t from;
    DType via;
    Compute to;
    int32_t reg;
  };
  /// A group in the making.
  struct Building {
    Group group;
    int32_t item = 0;
    std::vector<KnownInput> known;
    std::vector<Converted> converted;
    std::vector<Read> reads;
    std::vector<Write> writes;
  };

  const Value& value(ValueId id) const { return t_.values[id]; }
  bool is_tensor(ValueId id) const { return id != kNone && !value(id).number; }
  bool is_full(const Instruction& c, size_t operand) const {
    return t_.sizes_of(value(t_.inputs_of(c)[operand])) == t_.sizes_of(value(t_.outputs_of(c)[0]));
  }
  /// Whether two values over one slot have the same element at the same place of the sequence.
  bool same_place(ValueId a, ValueId b) const { return a == b || (value(a).linear && value(b).linear && value(a).dtype == value(b).dtype); }

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

  // --- placing calls ----------------------------------------------------------------------------------------------

  void place(uint32_t i) {
    const Instruction& c = t_.calls[i];
    if (fuse_ && c.op->elementwise && !reads_its_target_elsewhere(c)) {
      Building* b = find_group(c, /*reduction=*/false);
      if (!b) b = &open_group(c);
      add_elementwise(*b, c, i);
    } else if (fuse_ && c.op->family == Family::reduction && reduce_kind(c) != Group::Reduce::none) {
      if (Building* b = find_group(c, /*reduction=*/true)) add_reduction(*b, c, i);
      else add_call(c, i);
    } else {
      add_call(c, i);
    }
  }

  /// x.add_(x.t()): no order of elements makes this right without a copy.
  bool reads_its_target_elsewhere(const Instruction& c) const {
    if (!c.inplace) return false;
    const auto inputs = t_.inputs_of(c);
    for (size_t k = 1; k < inputs.size(); ++k)
      if (is_tensor(inputs[k]) && value(inputs[k]).slot == value(inputs[0]).slot && !same_place(inputs[k], inputs[0])) return true;
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

  /// Operands that an elementwise call reads; a copy does not look at what it overwrites.
  size_t first_operand(const Instruction& c) const { return c.op == &op_of<Copy> || c.op == &op_of<Fill> ? 1 : 0; }

  Building* find_group(const Instruction& c, bool reduction) {
    const auto last = static_cast<int32_t>(items_.size()) - 1;
    const ValueId space = reduction ? t_.inputs_of(c)[0] : t_.outputs_of(c)[0];
    for (int32_t g = last; g > barrier_ && g > last - kLookBack; --g) {
      if (items_[static_cast<size_t>(g)].group < 0) continue;
      Building& b = building_[static_cast<size_t>(items_[static_cast<size_t>(g)].group)];
      if (sequence_.find(b.group.space) != sequence_.find(space)) continue;
      if (fits(b, c, reduction)) return &b;
    }
    return nullptr;
  }

  bool fits(const Building& b, const Instruction& c, bool reduction) {
    if (b.group.program.steps.size() >= kMostSteps || b.group.inputs.size() + 4 > kMostInputs || b.writes.size() >= kMostOutputs) return false;
    const int32_t g = b.item;
    const auto inputs = t_.inputs_of(c);
    bool related = false;
    for (size_t k = first_operand(c); k < inputs.size(); ++k) {
      if (!is_tensor(inputs[k])) continue;
      const SlotState& s = slots_[value(inputs[k]).slot];
      if (s.write > g) return false;
      const bool full = reduction || is_full(c, k);
      if (s.write == g) {
        if (s.reg < 0 || !full || !same_place(inputs[k], s.written)) return false;
        related = true;
      } else {
        for (const KnownInput& known : b.known) related |= known.value == inputs[k];
      }
    }
    if (reduction) {
      const Group::Reduce kind = reduce_kind(c);
      // A reduction alone is a call; one of another kind walks the elements in another order.
      return related && (b.group.reduce == Group::Reduce::none || (b.group.reduce == kind && same_reduction_space(b, c)));
    }
    const ValueId w = t_.outputs_of(c)[0];
    const SlotId target = value(w).slot;
    const SlotState& s = slots_[target];
    if (s.write > g || s.read > g) return false;
    if (s.write == g && (s.reg < 0 || !same_place(w, s.written))) return false;
    for (const Read& r : b.reads)
      if (r.slot == target && !same_place(w, r.value)) return false;
    // Effects stay behind calls that can fail, as in eager mode.
    if (t_.slots[target].outside && last_call_ > g) return false;
    return related;
  }

  /// Rows or columns must be cut alike: the input of all reductions of a group has one shape and loses the same dimensions.
  bool same_reduction_space(const Building& b, const Instruction& c) {
    const Instruction& other = t_.calls[b.group.reductions[0].call];
    const auto& mine = *static_cast<const ReduceAttrs*>(t_.attrs_of(c));
    const auto& its = *static_cast<const ReduceAttrs*>(t_.attrs_of(other));
    return mine.dims == its.dims && shape_.find(t_.inputs_of(c)[0]) == shape_.find(t_.inputs_of(other)[0]);
  }

  Building& open_group(const Instruction& c) {
    Building b;
    b.item = static_cast<int32_t>(items_.size());
    b.group.space = t_.outputs_of(c)[0];
    Item item;
    item.group = static_cast<int32_t>(building_.size());
    items_.push_back(std::move(item));
    building_.push_back(std::move(b));
    return building_.back();
  }

  void add_call(const Instruction& c, uint32_t i) {
    const auto item = static_cast<int32_t>(items_.size());
    Item it;
    it.call = i;
    items_.push_back(std::move(it));
    last_call_ = item;
    for (const ValueId id : t_.inputs_of(c))
      if (is_tensor(id)) note_read(value(id).slot, item);
    for (const ValueId id : t_.outputs_of(c))
      if (id != kNone) note_write(value(id).slot, item, kNone, -1, Compute::F32);
    if (c.op->effect) {
      // It may look at anything that is visible from outside, and change it.
      barrier_ = item;
      for (SlotId s = 0; s < slots_.size(); ++s)
        if (t_.slots[s].live || t_.slots[s].outside) note_read(s, item);
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
    if (s.reg < 0 || s.write < 0) return;
    for (Write& w : building_[static_cast<size_t>(items_[static_cast<size_t>(s.write)].group)].writes)
      if (w.slot == slot) w.needed = true;
  }
  void note_write(SlotId slot, int32_t item, ValueId written, int32_t reg, Compute rep) {
    SlotState& s = slots_[slot];
    // A write that does not replace all of what a group wrote leaves the rest to be seen.
    if (s.write >= 0 && s.write != item && (written == kNone || s.written == kNone || !same_place(written, s.written))) need(slot);
    s.write = item;
    s.written = written;
    s.reg = reg;
    s.rep = rep;
  }

  // --- building programs ------------------------------------------------------------------------------------------

  int32_t convert(Building& b, int32_t reg, Compute from, DType via, Compute to) {
    if (from == to && via == dtype_of(to)) return reg;
    for (const Converted& known : b.converted)
      if (known.from == reg && known.via == via && known.to == to) return known.reg;
    BlockProgram::Step step;
    step.kind = BlockProgram::Step::Kind::convert;
    step.compute = to;
    step.from = from;
    step.via = via;
    step.arity = 1;
    step.operands[0] = reg;
    b.group.program.steps.push_back(step);
    const int32_t result = kStep + static_cast<int32_t>(b.group.program.steps.size()) - 1;
    b.converted.push_back({reg, via, to, result});
    return result;
  }

  int32_t operand(Building& b, ValueId id, ValueId shape, Compute compute) {
    BlockProgram& p = b.group.program;
    if (value(id).number) {
      p.scalars.push_back(compute);
      b.group.numbers.push_back(id);
      return kScalar + static_cast<int32_t>(p.scalars.size()) - 1;
    }
    const SlotId slot = value(id).slot;
    const SlotState& s = slots_[slot];
    if (s.write == b.item) return convert(b, s.reg, s.rep, value(id).dtype, compute);
    for (size_t k = 0; k < b.known.size(); ++k)
      if (b.known[k].value == id && b.known[k].compute == compute && b.known[k].shape == shape_.find(shape)) return static_cast<int32_t>(k);
    note_read(slot, b.item);
    b.reads.push_back({slot, id});
    p.inputs.push_back(compute);
    b.group.inputs.push_back({id, shape});
    b.known.push_back({id, shape_.find(shape), compute});
    return static_cast<int32_t>(p.inputs.size()) - 1;
  }

  /// The type the eager kernel would convert the operands to.
  Compute compute_of(const Instruction& c) const {
    SmallVector<Tensor, 4> headers;
    SmallVector<const Tensor*, 4> list;
    for (const ValueId id : t_.inputs_of(c)) {
      const Value& v = value(id);
      headers.push_back(Tensor(TensorImpl::create(Storage::create_lazy(0), v.dtype, Shape(t_.sizes_of(v)), Shape(t_.strides_of(v)))));
      headers.back().impl().wrapped_number = v.wrapped;
    }
    for (const Tensor& h : headers) list.push_back(&h);
    return compute_type(pointwise_input_type(*c.op, {list.data(), list.size()}));
  }

  void add_elementwise(Building& b, const Instruction& c, uint32_t i) {
    const auto inputs = t_.inputs_of(c);
    const ValueId out = t_.outputs_of(c)[0];
    int32_t reg;
    Compute rep;
    if (is_copy(c.op)) {
      const ValueId source = inputs[first_operand(c)];
      rep = compute_type(value(source).dtype);
      reg = operand(b, source, out, rep);
    } else {
      rep = compute_of(c);
      BlockProgram::Step step;
      step.compute = rep;
      step.op = static_cast<int16_t>(c.op->index);
      step.arity = static_cast<int16_t>(inputs.size());
      for (size_t k = 0; k < inputs.size(); ++k) step.operands[k] = operand(b, inputs[k], out, rep);
      b.group.program.steps.push_back(step);
      reg = kStep + static_cast<int32_t>(b.group.program.steps.size()) - 1;
    }
    const SlotId slot = value(out).slot;
    note_write(slot, b.item, out, reg, rep);
    bool replaced = false;
    for (Write& w : b.writes)
      if (w.slot == slot) w = {slot, out, reg, w.needed}, replaced = true;
    if (!replaced) b.writes.push_back({slot, out, reg, false});
    b.group.calls.push_back(i);
  }

  void add_reduction(Building& b, const Instruction& c, uint32_t i) {
    const ValueId in = t_.inputs_of(c)[0];
    const int32_t reg = operand(b, in, in, compute_type(value(in).dtype));
    b.group.reduce = reduce_kind(c);
    b.group.reductions.push_back({i, reg});
    note_write(value(t_.outputs_of(c)[0]).slot, b.item, kNone, -1, Compute::F32);
    b.group.calls.push_back(i);
  }

  // --- the end ------------------------------------------------------------------------------------------------------

  void number_registers(Building& b) {
    BlockProgram& p = b.group.program;
    const auto inputs = static_cast<int32_t>(p.inputs.size()), scalars = static_cast<int32_t>(p.scalars.size());
    auto final_number = [&](int32_t reg) { return reg >= kStep ? reg - kStep + inputs + scalars : reg >= kScalar ? reg - kScalar + inputs : reg; };
    for (BlockProgram::Step& s : p.steps)
      for (int k = 0; k < s.arity; ++k) s.operands[k] = final_number(s.operands[k]);
    for (const Write& w : b.writes)
      if (w.needed) b.group.outputs.push_back({w.value, final_number(w.reg)});
    for (const Group::Output& o : b.group.outputs) p.outputs.push_back(o.reg);
    for (Group::Reduction& r : b.group.reductions) p.outputs.push_back(r.reg = final_number(r.reg));
  }

  Plan finish() {
    for (SlotId s = 0; s < slots_.size(); ++s)
      if (t_.slots[s].live || t_.slots[s].outside) need(s);
    Plan plan;
    std::vector<int32_t> last(slots_.size(), -1);
    for (size_t i = 0; i < items_.size(); ++i) {
      Item& item = items_[i];
      auto touch = [&](uint32_t call) {
        for (const ValueId id : t_.inputs_of(t_.calls[call]))
          if (is_tensor(id)) last[value(id).slot] = static_cast<int32_t>(i);
        for (const ValueId id : t_.outputs_of(t_.calls[call]))
          if (id != kNone) last[value(id).slot] = static_cast<int32_t>(i);
      };
      if (item.group >= 0) {
        Building& b = building_[static_cast<size_t>(item.group)];
        for (uint32_t call : b.group.calls) touch(call);
        if (b.group.calls.size() == 1) {
          // The eager kernel of a single call is as good as a generated one.
          item.call = b.group.calls[0];
          item.group = -1;
        } else {
          number_registers(b);
          item.group = static_cast<int32_t>(plan.groups.size());
          plan.groups.push_back(std::move(b.group));
        }
      } else {
        touch(item.call);
      }
    }
    for (SlotId s = 0; s < slots_.size(); ++s)
      if (last[s] >= 0) items_[static_cast<size_t>(last[s])].last_uses.push_back(s);
    plan.items = std::move(items_);
    return plan;
  }

  const Trace& t_;
  const std::vector<bool>& skipped_;
  const bool fuse_;
  Classes sequence_, shape_;
  std::vector<SlotState> slots_;
  std::vector<Item> items_;
  std::vector<Building> building_;
  int32_t last_call_ = -1;
  int32_t barrier_ = -1;  ///< the last call with effects; nothing moves across it
};

}  // namespace

Plan make_plan(const Trace& trace, const std::vector<bool>& skipped, bool fuse) { return Planner(trace, skipped, fuse).make(); }

}  // namespace grapnel::compile_detail
