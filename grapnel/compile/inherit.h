/// Finds results that take over the memory of an operand: see Note [Inheriting memory] in plan.h.
#pragma once

#include "grapnel/compile/classes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// Lists them in the plan, which is complete otherwise.
void find_heirs(const capture::Trace& trace, Classes& sequence, Plan& plan);

/// Gives operands the memory of their heirs. Before anything has run.
void let_inherit(const Plan& plan, capture::Trace& trace);

}  // namespace grapnel::compiler
