/// Gradients whose bits do not depend on the number of ranks.
///
/// The global batch is cut into a fixed number of micro-batches, whatever the number of ranks; each
/// rank computes its share of them one by one, and their gradients are added by one fixed tree. So
/// 1, 2 and 4 ranks train to identical weights, at a price: gradients are sent whole, after the
/// backward passes and not during them, and memory for one further copy of the gradients per level
/// of the tree is needed.
#pragma once

#include <functional>

#include "grapnel/dist/data_parallel.h"

namespace grapnel::dist {

/// Calls `backward_of(i)` for this rank's share of the micro-batches 0 to count - 1 and leaves the
/// mean of all their gradients in grad(). The function runs forward and backward for micro-batch i
/// of the global batch. `count` and the number of ranks are powers of two, and count is not
/// smaller.
void backward_by_micro_batches(DataParallelModule& model, int64_t count,
                               const std::function<void(int64_t)>& backward_of);

}  // namespace grapnel::dist
