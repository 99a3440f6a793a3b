/// The backend that runs a trace as it was recorded.
#include "grapnel/base/interrupt.h"
#include "grapnel/capture/run_log.h"
#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/observe.h"

namespace grapnel::compiler {

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
    std::vector<uint32_t> until(trace.holds.empty() ? 0 : trace.slots.size());
    for (const Hold& hold : trace.holds) until[hold.slot] = hold.until;
    size_t over = 0;  // of the holds, which are in the order of their ends
    Memory memory(trace);
    RunObserver* const observer = RunObserver::current();
    if (observer) [[unlikely]]
      observer->on_graph(trace);
    uint32_t next = 0;
    try {
      while (next < trace.calls.size()) {
        base::between_pieces();
        const uint32_t i = next;
        const Instruction& call = trace.calls[i];
        RunLog::reach(trace, i);
        for (; over < trace.holds.size() && trace.holds[over].until <= i; ++over)
          if (const SlotId s = trace.holds[over].slot; last_use[s] < i && until[s] <= i)
            memory.release(s);
        const auto begin = observer ? std::chrono::steady_clock::now() : RunObserver::Time();
        run_call(trace, call, memory);
        ++next;
        if (observer) [[unlikely]] {
          RunLog::reach(trace, next);
          observer->on_item(trace, {{&i, 1}, false, begin, std::chrono::steady_clock::now()});
        }
        auto release = [&](std::span<const ValueId> ids) {
          for (const ValueId id : ids)
            if (const SlotId s = slot_of(id);
                s != kNone && last_use[s] == i && (until.empty() || until[s] <= i + 1))
              memory.release(s);
        };
        release(trace.inputs_of(call));
        release(trace.outputs_of(call));
      }
      RunLog::reach(trace, next);
      trace.allocate_results();
    } catch (...) {
      for (; next < trace.calls.size(); ++next) RunLog::left_out(trace, trace.calls[next]);
      throw;
    }
  }
};

}  // namespace

std::unique_ptr<Executable> make_op_by_op() { return std::make_unique<OpByOp>(); }

}  // namespace grapnel::compiler
