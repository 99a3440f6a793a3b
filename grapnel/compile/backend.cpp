/// The backends that plan a trace before they run it.
#include "grapnel/compile/executable.h"
#include "grapnel/compile/group_run.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/passes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compile_detail {

using namespace capture;

namespace {

class Planned final : public Executable {
 public:
  Planned(const Trace& trace, bool fuse) : simplified_(simplify(trace, pass_options())) {
    if (simplified_.same.empty()) {
      plan_ = make_plan(trace, simplified_.skipped, fuse);
    } else {
      Trace joined = trace;
      redirect(joined, simplified_);
      plan_ = make_plan(joined, simplified_.skipped, fuse);
    }
    kernels = static_cast<int64_t>(plan_.groups.size());
    for (const Group& g : plan_.groups) fused_calls += static_cast<int64_t>(g.calls.size());
  }

  void run(Trace& trace, RunCounts& counts) const override {
    redirect(trace, simplified_);
    Memory memory(trace);
    for (const Item& item : plan_.items) {
      if (item.group >= 0) run_group(plan_.groups[static_cast<size_t>(item.group)], nullptr, trace, memory, counts);
      else run_call(trace, trace.calls[item.call], memory);
      for (const SlotId slot : item.last_uses) memory.release(slot);
    }
    for (const Slot& s : trace.slots)
      if (s.live) s.held->data();
  }

 private:
  Simplified simplified_;
  Plan plan_;
};

}  // namespace

std::unique_ptr<Executable> make_executable(const Trace& trace, const CompileOptions& options) {
  if (options.backend == Backend::eager) return make_op_by_op();
  return std::make_unique<Planned>(trace, options.backend == Backend::fused && pass_options().fusion);
}

}  // namespace grapnel::compile_detail
