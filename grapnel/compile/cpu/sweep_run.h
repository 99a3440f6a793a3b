/// Running groups of a plan over the elements of a trace, one by one or in sweeps.
#pragma once

#include <span>

#include "grapnel/compile/cpu/group_run.h"

namespace grapnel::compiler {

void run_group(const GroupCode& group, capture::Trace& trace, Memory& memory, RunCounts& counts);

/// False, with nothing done, if the sizes of this trace do not permit it: then the groups have to
/// run one after the other.
bool run_sweep(const Sweep& sweep, std::span<const GroupCode> parts, capture::Trace& trace,
               Memory& memory, RunCounts& counts);

}  // namespace grapnel::compiler
