/// Running a group that begins with a product or convolution: Note [Epilogues] in plan.h.
#pragma once

#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compile_detail {

/// `kernel` may be null: then the program is interpreted.
void run_epilogue(const Group& group, codegen::BlockFn kernel, capture::Trace& trace, Memory& memory,
                  RunCounts& counts);

}  // namespace grapnel::compile_detail
