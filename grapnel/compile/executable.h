/// Executable: a way to run every trace of one key.
#pragma once

#include <memory>

#include "grapnel/capture/trace.h"
#include "grapnel/compile/options.h"

namespace grapnel::compiler {

/// What one run moved through fused kernels.
struct RunCounts {
  int64_t bytes_read = 0, bytes_written = 0;
};

class Executable {
 public:
  virtual ~Executable() = default;
  /// Computes the live slots of the trace. Safe on several threads at once. Lets go of storages as
  /// they are consumed.
  virtual void run(capture::Trace& trace, RunCounts& counts) const = 0;
  int64_t kernels = 0, fused_calls = 0, epilogues = 0, prologues = 0;
};

/// Runs the calls one after the other.
std::unique_ptr<Executable> make_op_by_op();
/// The executable of the backend for traces like this one; throws what kept it from being made.
std::unique_ptr<Executable> make_executable(const capture::Trace& trace,
                                            const CompileOptions& options);

}  // namespace grapnel::compiler
