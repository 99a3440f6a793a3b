/// Sums that nobody waits for, placed where somebody passes anyway.
#pragma once

#include "grapnel/compile/classes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// The calls to be placed, in the order in which to place them: that of the trace, except that
/// looks wait for their hosts; see Note [Looks] in plan.h. `sequence`: values with equal sequences,
/// by the shape rules.
std::vector<uint32_t> with_looks_at_their_hosts(const capture::Trace& trace,
                                                const std::vector<bool>& skipped,
                                                Classes& sequence);

}  // namespace grapnel::compiler
