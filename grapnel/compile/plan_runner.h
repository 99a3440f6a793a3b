/// PlanRunner: runs the items of a plan on one device.
#pragma once

#include <memory>

#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// A plan with what a device needs to run it, such as machine code.
class PreparedPlan {
 public:
  virtual ~PreparedPlan() = default;
  /// Runs item `first` and those that run together with it, and returns how many these are. Safe on
  /// several threads at once.
  virtual size_t run(size_t first, capture::Trace& trace, Memory& memory,
                     RunCounts& counts) const = 0;
};

class PlanRunner {
 public:
  /// What the planner may build for it, of what was asked for.
  virtual PlanOptions options(PlanOptions asked) const = 0;
  /// The plan has to outlive the result.
  virtual std::unique_ptr<PreparedPlan> prepare(const Plan& plan, OnFailure on_failure) const = 0;

 protected:
  ~PlanRunner() = default;
};

/// That of a device. The CPU's is in compile/cpu/; any other runs call by call.
const PlanRunner& runner_of(Device device);
const PlanRunner& call_by_call();

}  // namespace grapnel::compiler
