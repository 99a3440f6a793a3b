/// Seams like those in record.h, for graphs that fail while they run.
#pragma once

#include <functional>

#include "grapnel/tensor/tensor.h"

namespace grapnel::record {

/// Runs `fn` if running what is being recorded ends with an exception, after its results were
/// marked as lost. `fn` must not hold on to pending tensors: what it holds looks alive.
void on_failure(std::function<void()> fn);

/// Whether a tensor will never be computed: what was recorded failed, or was given up.
bool is_lost(const Tensor& t);

}  // namespace grapnel::record
