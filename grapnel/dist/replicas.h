/// Keeping replicas equal: the check that all ranks wrap the same module, and copying tensors from
/// one rank to all.
#pragma once

#include <vector>

#include "grapnel/dist/data_parallel_options.h"
#include "grapnel/dist/process_group.h"

namespace grapnel::dist {

/// Throws on every rank if some rank's parameters differ from those of rank 0 in number, shape,
/// strides or type.
void check_same_parameters(const std::vector<Parameter>& parameters, const ProcessGroup& group);

/// Copies the tensors of `root` to all ranks, several in one message.
void broadcast_tensors(const std::vector<Tensor>& tensors, const ProcessGroup& group, int root = 0,
                       int64_t bytes_at_once = 250 * kMiB);

}  // namespace grapnel::dist
