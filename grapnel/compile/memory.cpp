#include "grapnel/compile/memory.h"

#include "grapnel/base/place.h"
#include "grapnel/ops/evaluator.h"

namespace grapnel::compiler {

using namespace capture;

Tensor Memory::tensor(ValueId id) {
  const Value& v = trace_.values[id];
  if (v.number) {
    Tensor t(TensorImpl::create(Storage::create(sizeof(uint64_t), kCPU), v.dtype, {}, {}));
    std::memcpy(t.impl().host(), &trace_.numbers[v.slot], sizeof(uint64_t));
    t.impl().wrapped_number = true;
    return t;
  }
  Tensor t(TensorImpl::create_from(storage(v.slot), v.dtype, trace_.sizes_of(v),
                                   trace_.strides_of(v), trace_.offset_of(v)));
  t.impl().wrapped_number = v.wrapped;
  return t;
}

Operands::Operands(const Trace& trace, const Instruction& call, Memory& memory, int without) {
  for (const ValueId id : trace.inputs_of(call)) {
    if (id == kNone) {
      tensors.push_back(Tensor());
    } else if (static_cast<int>(tensors.size()) == without) {
      const Value& v = trace.values[id];
      tensors.push_back(
          Tensor(TensorImpl::create(Storage::create_lazy(0, kCPU), v.dtype,
                                    Shape(trace.sizes_of(v)), Shape(trace.strides_of(v)))));
    } else {
      tensors.push_back(memory.tensor(id));
    }
  }
  for (const Tensor& t : tensors) pointers.push_back(&t);
}

void rethrow_from(const Trace& trace, const Instruction& call) {
  const base::Remembered* const context =
      call.place != kNone ? trace.places[call.place].get() : nullptr;
  // Code of the user says itself where it failed.
  if (call.op->effect) {
    if (context && !context->is_module()) base::note(context->text());
    throw;
  }
  try {
    throw;
  } catch (Error& error) {
    base::set_place(error, call.site, call.called, context);
    throw;
  }
}

namespace {

bool uses_device(const Trace& trace, const Instruction& call) {
  bool any = false;
  for (const ValueId id : trace.inputs_of(call)) {
    if (id == kNone || trace.values[id].number) continue;
    any |= !trace.slots[trace.values[id].slot].device.is_cpu();
  }
  return any;
}

}  // namespace

void run_call(const Trace& trace, const Instruction& call, Memory& memory) {
  if (call.op->family == Family::view) return;  // the values know where they lie
  const Operands in(trace, call, memory);
  Outputs outputs;
  if (call.inplace) outputs.push_back(in.tensors[0]);
  else
    for (const ValueId id : trace.outputs_of(call))
      outputs.push_back(id == kNone ? Tensor() : memory.tensor(id));
  try {
    const Inputs inputs(in.pointers.data(), in.pointers.size());
    // Functions of the program are called by the CPU, wherever their arguments are.
    Device device;
    if (uses_device(trace, call) && !call.op->opaque) [[unlikely]]
      device = device_of(*call.op, inputs);
    evaluator_of(device).run(*call.op, inputs, trace.attrs_of(call),
                             {outputs.data(), outputs.size()});
  } catch (...) {
    rethrow_from(trace, call);
  }
}

}  // namespace grapnel::compiler
