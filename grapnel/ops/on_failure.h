/// A seam like those in record.h: what is to be done if a recorded graph fails while it runs.
#pragma once

#include <functional>

namespace grapnel::record {

/// Runs `fn` if running what is being recorded ends with an exception, after its results were
/// marked as lost. `fn` must not hold on to pending tensors: what it holds looks alive.
void on_failure(std::function<void()> fn);

}  // namespace grapnel::record
