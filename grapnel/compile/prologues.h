/// Finding groups that only prepare an operand of a product: Note [Prologues] in plan.h.
#pragma once

#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// Marks the items that can run together with the product behind them.
void find_prologues(const capture::Trace& trace, Plan& plan);

/// The product that item `i` is or begins with, or kNone.
uint32_t product_at(const Plan& plan, size_t i);

}  // namespace grapnel::compiler
