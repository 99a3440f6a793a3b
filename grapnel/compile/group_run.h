/// Runs one group of a plan over the elements of a trace.
#pragma once

#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compile_detail {

/// `kernel` may be null: then the program is interpreted.
void run_group(const Group& group, codegen::BlockFn kernel, capture::Trace& trace, Memory& memory, RunCounts& counts);

}  // namespace grapnel::compile_detail
