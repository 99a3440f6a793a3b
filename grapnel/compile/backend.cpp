/// The backends that plan a trace before they run it.
#include <atomic>

#include "grapnel/base/log.h"
#include "grapnel/capture/run_log.h"
#include "grapnel/codegen/jit.h"
#include "grapnel/compile/dump.h"
#include "grapnel/compile/executable.h"
#include "grapnel/compile/inherit.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/observe.h"
#include "grapnel/compile/passes.h"
#include "grapnel/compile/plan.h"
#include "grapnel/compile/product_run.h"
#include "grapnel/compile/prologues.h"
#include "grapnel/compile/sweep_run.h"

namespace grapnel::compile_detail {

using namespace capture;

namespace {

void fail_if_asked(Stage stage) {
  if (pass_options().fails == stage) fail("a test asked for a failure.");
}

/// Kernels are made on a thread of their own while the first runs interpret; somebody who wants an
/// error instead has to wait for it.
std::shared_ptr<const codegen::Kernel> make_kernel(const codegen::BlockProgram& program,
                                                   OnFailure on_failure) {
  const bool wait = on_failure == OnFailure::error || !pass_options().background_kernels;
  auto kernel =
      codegen::kernel_for(program, wait ? codegen::Compile::now : codegen::Compile::in_background);
  if (on_failure == OnFailure::error && kernel->state() == codegen::Kernel::State::failed)
    fail(kernel->error());
  return kernel;
}

/// Whether results of a group are gone from the caches before anybody can read them there.
bool is_large(const Group& group, const Trace& trace) {
  if (!group.reductions.empty() || group.outputs.empty()) return false;
  int64_t bytes = 0;
  auto count = [&](ValueId id) {
    bytes += trace.numel_of(trace.values[id]) *
             static_cast<int64_t>(element_size(trace.values[id].dtype));
  };
  for (const Group::Input& in : group.inputs) count(in.value);
  for (const Group::Output& out : group.outputs) count(out.value);
  return bytes > pass_options().stream_bytes;
}

/// Whether it pays to reduce inside the kernel: there are rows enough, and they have several values
/// for each lane.
bool reduces_inside(const Group& group, const Trace& trace) {
  constexpr int64_t worth_a_look_up = 1 << 14, several = 4;
  if (group.reduce != Group::Reduce::rows) return false;
  const auto elements = [&](ValueId id) { return trace.numel_of(trace.values[id]); };
  const ValueId result = trace.outputs_of(trace.calls[group.reductions[0].call])[0];
  return elements(group.space) >= worth_a_look_up &&
         elements(group.space) >= several * kernels::kReduceLanes * elements(result);
}

void warn_once(const codegen::Kernel& kernel) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true))
    base::warn(str("compile: fused kernels run interpreted: ", kernel.error()));
}

class Planned final : public Executable {
 public:
  Planned(const Trace& given, PlanOptions options, OnFailure on_failure) {
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
      kernels_.push_back(make_kernel(g.program, on_failure));
    }
    if (std::ostream* out = dump_stream()) [[unlikely]]
      dump(*out, trace, simplified_, plan_);
  }

  void run(Trace& trace, RunCounts& counts) const override {
    redirect(trace, simplified_);
    let_inherit(plan_, trace);
    Memory memory(trace);
    RunObserver* const observer = RunObserver::current;
    if (observer) [[unlikely]]
      observer->on_graph(trace);
    size_t next = 0;
    try {
      while (next < plan_.items.size()) run_next(next, trace, memory, counts, observer);
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
    const Item& item = plan_.items[i];
    RunLog::reach(trace, item.at);
    const auto begin = observer ? std::chrono::steady_clock::now() : RunObserver::Time();
    size_t done = item.sweep >= 0 ? swept(plan_.sweeps[static_cast<size_t>(item.sweep)], trace,
                                          memory, counts)
                  : item.prologue ? with_product(i, trace, memory, counts)
                                  : 0;
    if (done == 0) {
      if (item.group >= 0 && group(item).product)
        run_epilogue({&group(item), {code(item)}}, trace, memory, counts);
      else if (item.group >= 0)
        run_group({&group(item), code_for(item, trace)}, trace, memory, counts);
      else run_call(trace, trace.calls[item.call], memory);
      done = 1;
    }
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
  codegen::BlockFn code(const Item& item) const {
    const codegen::Kernel& kernel = *kernels_[static_cast<size_t>(item.group)];
    if (kernel.state() == codegen::Kernel::State::failed) [[unlikely]]
      warn_once(kernel);
    return kernel.fn();
  }
  /// The same with what suits the sizes. `last`: it runs on its own or at the end of a sweep, where
  /// large results may go past the caches.
  BlockCode code_for(const Item& item, const Trace& trace, bool last = true) const {
    const Group& g = group(item);
    BlockCode code{this->code(item)};
    if (!code.kernel) return code;
    // Looked up every time: what is large takes much longer than that.
    if (last && is_large(g, trace)) {
      codegen::BlockProgram program = g.program;
      program.streams = true;
      code.streaming = make_kernel(program, OnFailure::fall_back);
    } else if (reduces_inside(g, trace)) {
      codegen::BlockProgram program = g.program;
      for (const Group::Reduction& r : g.reductions)
        program.reductions.push_back(static_cast<int16_t>(trace.calls[r.call].op->index));
      code.reducing = make_kernel(program, OnFailure::fall_back);
    }
    return code;
  }
  /// How many items are done.
  size_t swept(const Sweep& sweep, Trace& trace, Memory& memory, RunCounts& counts) const {
    SmallVector<GroupCode, 8> parts;
    for (size_t k = 0; k < sweep.parts.size(); ++k) {
      const Item& item = plan_.items[sweep.first + k];
      // What an earlier part stores may be read by a later one at once.
      const bool last = k + 1 == sweep.parts.size();
      parts.push_back({&group(item), code_for(item, trace, last)});
    }
    return run_sweep(sweep, {parts.data(), parts.size()}, trace, memory, counts) ? parts.size() : 0;
  }

  size_t with_product(size_t i, Trace& trace, Memory& memory, RunCounts& counts) const {
    const Item &before = plan_.items[i], &behind = plan_.items[i + 1];
    const GroupCode epilogue =
        behind.group < 0 ? GroupCode() : GroupCode{&group(behind), {code(behind)}};
    return run_prologue(before, {&group(before), {code(before)}}, product_at(plan_, i + 1),
                        epilogue, trace, memory, counts)
               ? 2
               : 0;
  }

  Simplified simplified_;
  Plan plan_;
  std::vector<std::shared_ptr<const codegen::Kernel>> kernels_;
};

}  // namespace

std::unique_ptr<Executable> make_executable(const Trace& trace, const CompileOptions& options) {
  if (options.backend == Backend::eager) return make_op_by_op();
  const PlanOptions plan{options.backend == Backend::fused && pass_options().fusion,
                         pass_options().sweeps, pass_options().epilogues, pass_options().prologues,
                         pass_options().looks};
  return std::make_unique<Planned>(trace, plan, options.on_failure);
}

}  // namespace grapnel::compile_detail
