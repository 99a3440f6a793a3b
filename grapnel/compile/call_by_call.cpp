/// The plan runner of devices that fuse nothing: every call goes to the evaluator of its operands, so
/// a trace may have calls on several devices.
#include "grapnel/compile/plan_runner.h"

namespace grapnel::compiler {

namespace {

class PreparedCalls final : public PreparedPlan {
 public:
  explicit PreparedCalls(const Plan& plan) : plan_(plan) {}
  size_t run(size_t first, capture::Trace& trace, Memory& memory, RunCounts&) const override {
    run_call(trace, trace.calls[plan_.items[first].call], memory);
    return 1;
  }

 private:
  const Plan& plan_;
};

class CallByCall final : public PlanRunner {
 public:
  constexpr CallByCall() = default;
  PlanOptions options(PlanOptions) const override {
    return {.fuse = false, .sweeps = false, .epilogues = false, .prologues = false, .looks = false};
  }
  std::unique_ptr<PreparedPlan> prepare(const Plan& plan, OnFailure) const override {
    return std::make_unique<PreparedCalls>(plan);
  }
};

constinit const CallByCall the_runner;

}  // namespace

const PlanRunner& call_by_call() { return the_runner; }

}  // namespace grapnel::compiler
