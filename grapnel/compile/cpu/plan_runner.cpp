/// The plan runner of the CPU: kernels for groups, and what suits the sizes of a trace.
#include "grapnel/compile/plan_runner.h"

#include <atomic>

#include "grapnel/base/warn.h"
#include "grapnel/codegen/jit.h"
#include "grapnel/compile/cpu/product_run.h"
#include "grapnel/compile/cpu/sweep_run.h"
#include "grapnel/compile/passes.h"
#include "grapnel/compile/prologues.h"

namespace grapnel::compiler {

using namespace capture;

namespace {

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

class PreparedForCpu final : public PreparedPlan {
 public:
  PreparedForCpu(const Plan& plan, OnFailure on_failure) : plan_(plan) {
    for (const Group& g : plan.groups) kernels_.push_back(make_kernel(g.program, on_failure));
  }

  size_t run(size_t first, Trace& trace, Memory& memory, RunCounts& counts) const override {
    const Item& item = plan_.items[first];
    const size_t done = item.sweep >= 0 ? swept(plan_.sweeps[static_cast<size_t>(item.sweep)],
                                                trace, memory, counts)
                        : item.prologue ? with_product(first, trace, memory, counts)
                                        : 0;
    if (done > 0) return done;
    if (item.group >= 0 && group(item).product)
      run_epilogue({&group(item), {code(item)}}, trace, memory, counts);
    else if (item.group >= 0)
      run_group({&group(item), code_for(item, trace)}, trace, memory, counts);
    else run_call(trace, trace.calls[item.call], memory);
    return 1;
  }

 private:
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
  /// How many items are done: 0 if sizes speak against it.
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

  const Plan& plan_;
  std::vector<std::shared_ptr<const codegen::Kernel>> kernels_;
};

class CpuRunner final : public PlanRunner {
 public:
  constexpr CpuRunner() = default;
  PlanOptions options(PlanOptions asked) const override { return asked; }
  std::unique_ptr<PreparedPlan> prepare(const Plan& plan, OnFailure on_failure) const override {
    return std::make_unique<PreparedForCpu>(plan, on_failure);
  }
};

constinit const CpuRunner the_runner;

}  // namespace

const PlanRunner& runner_of(Device device) {
  return device.is_cpu() ? static_cast<const PlanRunner&>(the_runner) : call_by_call();
}

}  // namespace grapnel::compiler
