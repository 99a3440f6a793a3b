/// What becomes of a plan once every call has its place.
#pragma once

#include <vector>

#include "grapnel/compile/classes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// Leaves out what nobody looks at, forms sweeps and prologues, and says when memory is free.
Plan finish_plan(const capture::Trace& trace, std::vector<Item> items, std::vector<Group> groups,
                 const PlanOptions& options, Classes& sequence, Classes& shape);

}  // namespace grapnel::compiler
