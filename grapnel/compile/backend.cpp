/// The backends that plan a trace before they run it.
#include <chrono>

#include "grapnel/base/interrupt.h"
#include "grapnel/capture/run_log.h"
#include "grapnel/compile/custom.h"
#include "grapnel/compile/dump.h"
#include "grapnel/compile/inherit.h"
#include "grapnel/compile/observe.h"
#include "grapnel/compile/passes.h"
#include "grapnel/compile/plan_runner.h"

namespace grapnel::compiler {

using namespace capture;

namespace {

void fail_if_asked(Stage stage) {
  if (pass_options().fails == stage) fail("a test asked for a failure.");
}

/// The device of a trace, if it uses one.
Device device_of(const Trace& trace) {
  for (const Slot& slot : trace.slots)
    if (!slot.device.is_cpu()) return slot.device;
  return {};
}

class Planned final : public Executable {
 public:
  Planned(const Trace& given, PlanOptions asked, OnFailure on_failure) {
    const PlanRunner& runner = runner_of(device_of(given));
    const PlanOptions options = runner.options(asked);
    const Trace held = with_holds(given);
    const Trace& trace = given.holds.empty() ? given : held;
    simplified_ = simplify(trace, pass_options());
#ifndef NDEBUG
    verify(trace, simplified_);
#endif
    fail_if_asked(Stage::passes);
    if (simplified_.same.empty()) {
      plan(trace, options);
    } else {
      Trace joined = trace;
      redirect(joined, simplified_);
      plan(joined, options);
    }
    kernels = static_cast<int64_t>(plan_.groups.size());
    for (const Item& item : plan_.items) prologues += item.prologue ? 1 : 0;
    fail_if_asked(Stage::kernels);
    for (const Group& g : plan_.groups) {
      fused_calls += static_cast<int64_t>(g.calls.size());
      epilogues += g.product ? 1 : 0;
    }
    prepared_ = runner.prepare(plan_, on_failure);
    if (std::ostream* out = dump_stream()) [[unlikely]]
      dump(*out, trace, simplified_, plan_);
  }

  void run(Trace& trace, RunCounts& counts) const override {
    redirect(trace, simplified_);
    let_inherit(plan_, trace);
    Memory memory(trace);
    RunObserver* const observer = RunObserver::current();
    if (observer) [[unlikely]]
      observer->on_graph(trace);
    size_t next = 0;
    try {
      while (next < plan_.items.size()) {
        base::between_pieces();
        run_next(next, trace, memory, counts, observer);
      }
      RunLog::reach(trace, static_cast<uint32_t>(trace.calls.size()));
      trace.allocate_results();
    } catch (...) {
      for (; next < plan_.items.size(); ++next)
        for (const uint32_t call : calls_of(plan_.items[next]))
          RunLog::left_out(trace, trace.calls[call]);
      throw;
    }
  }

 private:
  /// The trace as the planner is to see it: what has to last for a while lives.
  static Trace with_holds(const Trace& trace) {
    if (trace.holds.empty()) return {};
    Trace held = trace;
    for (const Hold& hold : held.holds) held.slots[hold.slot].live = true;
    return held;
  }

  std::span<const uint32_t> calls_of(const Item& item) const {
    return item.group < 0 ? std::span(&item.call, 1) : std::span(group(item).calls);
  }

  /// Runs item `next` and those that run together with it, and steps behind them.
  void run_next(size_t& next, Trace& trace, Memory& memory, RunCounts& counts,
                RunObserver* observer) const {
    const size_t i = next;
    RunLog::reach(trace, plan_.items[i].at);
    const auto begin = observer ? std::chrono::steady_clock::now() : RunObserver::Time();
    const size_t done = prepared_->run(i, trace, memory, counts);
    next += done;
    if (observer) [[unlikely]]
      tell(*observer, trace, i, done, begin);
    for (size_t k = 0; k < done; ++k)
      for (const SlotId slot : plan_.items[i + k].last_uses) memory.release(slot);
  }

  /// Items [first, first + count) have run, together if there are several.
  void tell(RunObserver& observer, const Trace& trace, size_t first, size_t count,
            RunObserver::Time begin) const {
    const auto end = std::chrono::steady_clock::now();
    const size_t next = first + count;
    RunLog::reach(trace, next < plan_.items.size() ? plan_.items[next].at
                                                   : static_cast<uint32_t>(trace.calls.size()));
    if (plan_.items[first].group < 0)
      return observer.on_item(trace, {{&plan_.items[first].call, 1}, false, begin, end});
    std::vector<uint32_t> calls;
    for (size_t k = 0; k < count; ++k) {
      const Item& item = plan_.items[first + k];
      if (item.group < 0) calls.push_back(item.call);
      else calls.insert(calls.end(), group(item).calls.begin(), group(item).calls.end());
    }
    observer.on_item(trace, {calls, true, begin, end});
  }
  void plan(const Trace& trace, PlanOptions options) {
    plan_ = make_plan(trace, simplified_.skipped, options);
#ifndef NDEBUG
    verify(trace, simplified_.skipped, plan_);
#endif
    fail_if_asked(Stage::plan);
  }
  const Group& group(const Item& item) const {
    return plan_.groups[static_cast<size_t>(item.group)];
  }
  Simplified simplified_;
  Plan plan_;
  std::unique_ptr<const PreparedPlan> prepared_;
};

}  // namespace

std::unique_ptr<Executable> make_executable(const Trace& trace, const CompileOptions& options) {
  if (options.compiler) return make_custom(trace, options);
  if (options.backend == Backend::eager) return make_op_by_op();
  const PlanOptions plan{options.backend == Backend::fused && pass_options().fusion,
                         pass_options().sweeps, pass_options().epilogues, pass_options().prologues,
                         pass_options().looks};
  return std::make_unique<Planned>(trace, plan, options.on_failure);
}

}  // namespace grapnel::compiler
