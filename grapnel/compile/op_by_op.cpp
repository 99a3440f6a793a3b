/// The backend that runs a trace as it was recorded.
#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"

namespace grapnel::compile_detail {

using namespace capture;

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
    trace.allocate_results();
  }
};

}  // namespace

std::unique_ptr<Executable> make_op_by_op() { return std::make_unique<OpByOp>(); }

}  // namespace grapnel::compile_detail
