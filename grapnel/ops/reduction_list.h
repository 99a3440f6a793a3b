/// The list of all reductions. Their place in it is their place in the kernel tables.
#pragma once

#include "grapnel/ops/defs/reduction.h"

namespace grapnel {

using ReductionOps = OpList<Sum, Mean, Prod, Amax, Amin, Any, All>;

}  // namespace grapnel
