/// Running groups of a plan over the elements of a trace, one by one or in sweeps.
#pragma once

#include <span>

#include "grapnel/compile/group_run.h"

namespace grapnel::compile_detail {

void run_group(const Group& group, const BlockCode& code, capture::Trace& trace, Memory& memory,
               RunCounts& counts);

/// One group of a sweep and its code.
struct SweepPart {
  const Group* group;
  BlockCode code;
};
/// False, with nothing done, if the sizes of this trace do not permit it: then the groups have to
/// run one after the other.
bool run_sweep(const Sweep& sweep, std::span<const SweepPart> parts, capture::Trace& trace,
               Memory& memory, RunCounts& counts);

}  // namespace grapnel::compile_detail
