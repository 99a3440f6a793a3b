/// The backend that runs a trace as it was recorded.
#include "grapnel/base/source_site.h"
#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"

namespace grapnel::compile_detail {

using namespace capture;

Tensor Memory::tensor(ValueId id) {
  const Value& v = trace_.values[id];
  if (v.number) {
    Tensor t(TensorImpl::create(Storage::create(sizeof(uint64_t)), v.dtype, {}, {}));
    std::memcpy(t.impl().data(), &trace_.numbers[v.slot], sizeof(uint64_t));
    t.impl().wrapped_number = true;
    return t;
  }
  Tensor t(TensorImpl::create(storage(v.slot), v.dtype, Shape(trace_.sizes_of(v)),
                              Shape(trace_.strides_of(v)), trace_.offset_of(v)));
  t.impl().wrapped_number = v.wrapped;
  return t;
}

Operands::Operands(const Trace& trace, const Instruction& call, Memory& memory, int without) {
  for (const ValueId id : trace.inputs_of(call)) {
    if (id == kNone) {
      tensors.push_back(Tensor());
    } else if (static_cast<int>(tensors.size()) == without) {
      const Value& v = trace.values[id];
      tensors.push_back(Tensor(TensorImpl::create(
          Storage::create_lazy(0), v.dtype, Shape(trace.sizes_of(v)), Shape(trace.strides_of(v)))));
    } else {
      tensors.push_back(memory.tensor(id));
    }
  }
  for (const Tensor& t : tensors) pointers.push_back(&t);
}

void rethrow_from(const Instruction& call, const Error& error) {
  if (call.op->effect) throw;  // most likely the user's own
  fail(error.what(), "\nThe op was called at ", base::describe({call.site}), ".");
}

void run_call(const Trace& trace, const Instruction& call, Memory& memory) {
  if (call.op->family == Family::view) return;  // the values know where they lie
  const Operands in(trace, call, memory);
  Outputs outputs;
  if (call.inplace) outputs.push_back(in.tensors[0]);
  else
    for (const ValueId id : trace.outputs_of(call))
      outputs.push_back(id == kNone ? Tensor() : memory.tensor(id));
  try {
    call.op->run(*call.op, {in.pointers.data(), in.pointers.size()}, trace.attrs_of(call),
                 {outputs.data(), outputs.size()});
  } catch (const Error& e) {
    rethrow_from(call, e);
  }
}

namespace {

class OpByOp final : public Executable {
 public:
  void run(Trace& trace, RunCounts&) const override {
    std::vector<uint32_t> last_use(trace.slots.size(), kNone);
    auto slot_of = [&](ValueId id) {
      return id == kNone || trace.values[id].number ? kNone : trace.values[id].slot;
    };
    for (uint32_t i = 0; i < trace.calls.size(); ++i) {
      const Instruction& call = trace.calls[i];
      if (call.op->family == Family::view) continue;
      for (const ValueId id : trace.inputs_of(call))
        if (slot_of(id) != kNone) last_use[slot_of(id)] = i;
      for (const ValueId id : trace.outputs_of(call))
        if (slot_of(id) != kNone) last_use[slot_of(id)] = i;
    }
    Memory memory(trace);
    for (uint32_t i = 0; i < trace.calls.size(); ++i) {
      const Instruction& call = trace.calls[i];
      run_call(trace, call, memory);
      for (const ValueId id : trace.inputs_of(call))
        if (const SlotId s = slot_of(id); s != kNone && last_use[s] == i) memory.release(s);
      for (const ValueId id : trace.outputs_of(call))
        if (const SlotId s = slot_of(id); s != kNone && last_use[s] == i) memory.release(s);
    }
    // What was made but never written (an `empty` that is returned) still gets its memory.
    for (const Slot& s : trace.slots)
      if (s.live) s.held->data();
  }
};

}  // namespace

std::unique_ptr<Executable> make_op_by_op() { return std::make_unique<OpByOp>(); }

}  // namespace grapnel::compile_detail
