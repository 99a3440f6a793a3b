/// Running a product with the groups before and behind it: Note [Epilogues] and Note [Prologues] in
/// plan.h.
#pragma once

#include "grapnel/compile/cpu/group_run.h"

namespace grapnel::compiler {

/// Runs a group that begins with a product.
void run_epilogue(const GroupCode& group, capture::Trace& trace, Memory& memory, RunCounts& counts);

/// Runs the group of an item together with the product behind it, or with the group `behind` that
/// begins with it. False, with nothing done, if sizes speak against it.
bool run_prologue(const Item& item, const GroupCode& before, uint32_t product,
                  const GroupCode& behind, capture::Trace& trace, Memory& memory,
                  RunCounts& counts);

}  // namespace grapnel::compiler
