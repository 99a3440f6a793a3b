/// The backends that plan a trace before they run it.
#include <atomic>

#include "grapnel/base/log.h"
#include "grapnel/codegen/jit.h"
#include "grapnel/compile/executable.h"
#include "grapnel/compile/group_run.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/observe.h"
#include "grapnel/compile/passes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compile_detail {

using namespace capture;

namespace {

/// Kernels are made on a thread of their own while the first runs interpret; somebody who wants an error instead has to wait for it.
std::shared_ptr<const codegen::Kernel> make_kernel(const codegen::BlockProgram& program, OnFailure on_failure) {
  const bool wait = on_failure == OnFailure::error || !pass_options().background_kernels;
  auto kernel = codegen::kernel_for(program, wait ? codegen::Compile::now : codegen::Compile::in_background);
  if (on_failure == OnFailure::error && kernel->state() == codegen::Kernel::State::failed) fail(kernel->error());
  return kernel;
}

void warn_once(const codegen::Kernel& kernel) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) base::warn(str("compile: fused kernels run interpreted: ", kernel.error()));
}

class Planned final : public Executable {
 public:
  Planned(const Trace& trace, bool fuse, OnFailure on_failure) : simplified_(simplify(trace, pass_options())) {
    if (simplified_.same.empty()) {
      plan_ = make_plan(trace, simplified_.skipped, fuse);
    } else {
      Trace joined = trace;
      redirect(joined, simplified_);
      plan_ = make_plan(joined, simplified_.skipped, fuse);
    }
    kernels = static_cast<int64_t>(plan_.groups.size());
    for (const Group& g : plan_.groups) {
      fused_calls += static_cast<int64_t>(g.calls.size());
      kernels_.push_back(make_kernel(g.program, on_failure));
    }
  }

  void run(Trace& trace, RunCounts& counts) const override {
    redirect(trace, simplified_);
    Memory memory(trace);
    RunObserver* const observer = RunObserver::current;
    if (observer) [[unlikely]] observer->on_graph(trace);
    for (const Item& item : plan_.items) {
      const auto begin = observer ? std::chrono::steady_clock::now() : RunObserver::Time();
      if (item.group >= 0) {
        const codegen::Kernel& kernel = *kernels_[static_cast<size_t>(item.group)];
        if (kernel.state() == codegen::Kernel::State::failed) [[unlikely]] warn_once(kernel);
        run_group(plan_.groups[static_cast<size_t>(item.group)], kernel.fn(), trace, memory, counts);
      } else run_call(trace, trace.calls[item.call], memory);
      if (observer) [[unlikely]] tell(*observer, trace, item, begin);
      for (const SlotId slot : item.last_uses) memory.release(slot);
    }
    for (const Slot& s : trace.slots)
      if (s.live) s.held->data();
  }

 private:
  void tell(RunObserver& observer, const Trace& trace, const Item& item, RunObserver::Time begin) const {
    const auto end = std::chrono::steady_clock::now();
    if (item.group >= 0) observer.on_item(trace, {plan_.groups[static_cast<size_t>(item.group)].calls, true, begin, end});
    else observer.on_item(trace, {{&item.call, 1}, false, begin, end});
  }

  Simplified simplified_;
  Plan plan_;
  std::vector<std::shared_ptr<const codegen::Kernel>> kernels_;
};

}  // namespace

std::unique_ptr<Executable> make_executable(const Trace& trace, const CompileOptions& options) {
  if (options.backend == Backend::eager) return make_op_by_op();
  return std::make_unique<Planned>(trace, options.backend == Backend::fused && pass_options().fusion, options.on_failure);
}

}  // namespace grapnel::compile_detail
