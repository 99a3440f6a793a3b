/// What a collective does to the memory of ranks that are threads of one process.
#pragma once

#include <vector>

#include "grapnel/dist/communicator.h"

namespace grapnel::dist {

/// Carries out a collective for all ranks at once. Sums are made in the order of ranks, each step
/// rounded to the type, so results have the same bits on every rank and in every run.
void execute(const std::vector<OperationPtr>& ops);

}  // namespace grapnel::dist
