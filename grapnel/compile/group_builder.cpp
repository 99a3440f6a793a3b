#include "grapnel/compile/group_builder.h"

#include <algorithm>

#include "grapnel/ops/defs/arithmetic.h"
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::compiler {

using namespace capture;
using codegen::BlockProgram;

namespace {

/// Larger programs compile slowly and run out of registers.
constexpr size_t kMostSteps = 64;
constexpr size_t kMostInputs = 24;
constexpr ptrdiff_t kMostOutputs = 16;

/// Registers while a program is being built; numbered as BlockProgram wants them at the end.
constexpr int32_t kScalar = 1 << 20, kStep = 1 << 21;

/// Elementwise without a formula: the values move, or change type.
bool is_copy(const Op* op) { return op->elementwise && op->family != Family::pointwise; }

}  // namespace

size_t first_operand(const Instruction& call) {
  return call.op == &op_of<Copy> || call.op == &op_of<Fill> ? 1 : 0;
}

bool GroupBuilder::is_full() const {
  const auto outputs =
      std::count_if(writes_.begin(), writes_.end(), [](const Write& w) { return w.needed; });
  return group_.program.steps.size() >= kMostSteps || group_.inputs.size() + 4 > kMostInputs ||
         outputs >= kMostOutputs;
}

bool GroupBuilder::knows(ValueId id) const {
  for (const KnownInput& known : known_)
    if (known.value == id) return true;
  return false;
}

const GroupBuilder::Write* GroupBuilder::written(SlotId slot) const {
  for (const Write& w : writes_)
    if (w.slot == slot) return &w;
  return nullptr;
}

void GroupBuilder::need(SlotId slot) {
  for (Write& w : writes_)
    if (w.slot == slot) w.needed = true;
}

int32_t GroupBuilder::convert(int32_t reg, Compute from, DType via, Compute to) {
  if (from == to && via == dtype_of(to)) return reg;
  for (const Converted& known : converted_)
    if (known.from == reg && known.via == via && known.to == to) return known.reg;
  BlockProgram::Step step;
  step.kind = BlockProgram::Step::Kind::convert;
  step.compute = to;
  step.from = from;
  step.via = via;
  step.arity = 1;
  step.operands[0] = reg;
  const int32_t result = add_step(step);
  converted_.push_back({reg, via, to, result});
  return result;
}

int32_t GroupBuilder::add_step(const BlockProgram::Step& step) {
  group_.program.steps.push_back(step);
  return kStep + static_cast<int32_t>(group_.program.steps.size()) - 1;
}

int32_t GroupBuilder::block_input(ValueId id, ValueId shape, Compute compute, int32_t trailing) {
  BlockProgram& p = group_.program;
  const DType stored = value(id).dtype;
  const bool narrow = stored != dtype_of(compute) && codegen::reads_directly(stored, compute);
  if (narrow && p.stored.empty())
    for (const Compute c : p.inputs) p.stored.push_back(dtype_of(c));
  p.inputs.push_back(compute);
  if (!p.stored.empty()) p.stored.push_back(narrow ? stored : dtype_of(compute));
  group_.inputs.push_back({id, shape, trailing});
  known_.push_back({id, shapes_.find(shape), compute, trailing});
  return static_cast<int32_t>(p.inputs.size()) - 1;
}

int32_t GroupBuilder::operand(ValueId id, ValueId shape, Compute compute, int32_t trailing) {
  BlockProgram& p = group_.program;
  if (value(id).number) {
    p.scalars.push_back(compute);
    group_.numbers.push_back(id);
    return kScalar + static_cast<int32_t>(p.scalars.size()) - 1;
  }
  const SlotId slot = value(id).slot;
  if (const Write* w = written(slot)) return convert(w->reg, w->rep, value(id).dtype, compute);
  for (size_t k = 0; k < known_.size(); ++k)
    if (known_[k].value == id && known_[k].compute == compute &&
        known_[k].shape == shapes_.find(shape) && known_[k].trailing == trailing)
      return static_cast<int32_t>(k);
  reads_.push_back({slot, id});
  return block_input(id, shape, compute, trailing);
}

/// The type the eager kernel would convert the operands to.
Compute GroupBuilder::compute_of(const Instruction& c) const {
  SmallVector<Tensor, 4> headers;
  SmallVector<const Tensor*, 4> list;
  for (const ValueId id : t_.inputs_of(c)) {
    const Value& v = value(id);
    headers.push_back(Tensor(TensorImpl::create(Storage::create_lazy(0, kCPU), v.dtype,
                                                Shape(t_.sizes_of(v)), Shape(t_.strides_of(v)))));
    headers.back().impl().wrapped_number = v.wrapped;
  }
  for (const Tensor& h : headers) list.push_back(&h);
  return compute_type(pointwise_input_type(*c.op, {list.data(), list.size()}));
}

void GroupBuilder::add_product(uint32_t call, const ProductForm& form) {
  const Instruction& c = t_.calls[call];
  const auto inputs = t_.inputs_of(c);
  const ValueId out = t_.outputs_of(c)[0];
  const Compute rep = compute_type(value(out).dtype);
  int32_t reg = block_input(out, out, rep, 0);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k] == kNone) continue;
    if (static_cast<int>(k) != form.addend) {
      reads_.push_back({value(inputs[k]).slot, inputs[k], true});
      continue;
    }
    BlockProgram::Step step;
    step.compute = rep;
    step.op = static_cast<int16_t>(op_of<Add>.index);
    step.arity = 2;
    step.operands[0] = reg;
    step.operands[1] = operand(inputs[k], out, rep, form.trailing);
    reg = add_step(step);
  }
  group_.product.call = call;
  writes_.push_back({value(out).slot, out, reg, rep, false});
  group_.calls.push_back(call);
}

void GroupBuilder::forget_product() {
  const std::vector<uint32_t> calls = std::move(group_.calls);
  const std::vector<Write> writes = std::move(writes_);
  const ValueId space = group_.space;
  group_ = {};
  group_.space = space;
  known_.clear();
  converted_.clear();
  reads_.clear();
  writes_.clear();
  for (size_t k = 1; k < calls.size(); ++k) add_elementwise(calls[k]);
  for (const Write& w : writes)
    if (w.needed) need(w.slot);
}

void GroupBuilder::add_elementwise(uint32_t call) {
  const Instruction& c = t_.calls[call];
  const auto inputs = t_.inputs_of(c);
  const ValueId out = t_.outputs_of(c)[0];
  int32_t reg;
  Compute rep;
  if (is_copy(c.op)) {
    const ValueId source = inputs[first_operand(c)];
    rep = compute_type(value(source).dtype);
    reg = operand(source, out, rep);
  } else {
    rep = compute_of(c);
    BlockProgram::Step step;
    step.compute = rep;
    step.op = static_cast<int16_t>(c.op->index);
    step.arity = static_cast<int16_t>(inputs.size());
    for (size_t k = 0; k < inputs.size(); ++k) step.operands[k] = operand(inputs[k], out, rep);
    reg = add_step(step);
  }
  const SlotId slot = value(out).slot;
  bool replaced = false;
  for (Write& w : writes_)
    if (w.slot == slot) w = {slot, out, reg, rep, w.needed}, replaced = true;
  if (!replaced) writes_.push_back({slot, out, reg, rep, false});
  group_.calls.push_back(call);
}

void GroupBuilder::add_reduction(uint32_t call, Group::Reduce kind) {
  const ValueId in = t_.inputs_of(t_.calls[call])[0];
  const int32_t reg = operand(in, in, compute_type(value(in).dtype));
  group_.reduce = kind;
  group_.reductions.push_back({call, reg});
  group_.calls.push_back(call);
}

/// A result that may lie over the product: of its type, element by element, and not read in the
/// group.
SlotId GroupBuilder::memory_of_product() const {
  const Value& product = value(t_.outputs_of(t_.calls[group_.product.call])[0]);
  auto is_read = [&](SlotId slot) {
    return std::any_of(reads_.begin(), reads_.end(), [&](const Read& r) { return r.slot == slot; });
  };
  if (group_.product.stored) return product.slot;
  for (const Group::Output& o : group_.outputs)
    if (value(o.value).slot == product.slot) return product.slot;
  for (const Group::Output& o : group_.outputs)
    if (const Value& v = value(o.value); v.linear && v.dtype == product.dtype && !is_read(v.slot))
      return v.slot;
  return product.slot;
}

Group GroupBuilder::finish() {
  BlockProgram& p = group_.program;
  const auto inputs = static_cast<int32_t>(p.inputs.size()),
             scalars = static_cast<int32_t>(p.scalars.size());
  auto final_number = [&](int32_t reg) {
    return reg >= kStep     ? reg - kStep + inputs + scalars
           : reg >= kScalar ? reg - kScalar + inputs
                            : reg;
  };
  for (BlockProgram::Step& s : p.steps)
    for (int k = 0; k < s.arity; ++k) s.operands[k] = final_number(s.operands[k]);
  for (const Write& w : writes_) {
    if (!w.needed) continue;
    // The product itself is there already.
    if (group_.product && w.reg == 0 && w.slot == value(group_.inputs[0].value).slot)
      group_.product.stored = true;
    else group_.outputs.push_back({w.value, final_number(w.reg)});
  }
  if (group_.product) group_.product.memory = memory_of_product();
  for (const Group::Output& o : group_.outputs) p.outputs.push_back(o.reg);
  for (Group::Reduction& r : group_.reductions) p.outputs.push_back(r.reg = final_number(r.reg));
  return std::move(group_);
}

}  // namespace grapnel::compiler
