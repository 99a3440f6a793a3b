/// Training with inputs that are not evenly spread: a rank that has run out goes on taking part
/// with zeros until all are done.
///
///   dist::join(model, [&] {
///     for (auto& batch : my_batches) {
///       optimizer.zero_grad();
///       loss(model(batch)).backward();
///       optimizer.step();
///     }
///   });
///
/// At the end every rank has the model of the rank that was busy longest.
#pragma once

#include <functional>

#include "grapnel/dist/data_parallel.h"

namespace grapnel::dist {

/// What uneven inputs divide by.
struct JoinOptions {
  /// Without a hook, sums are divided by the number of all ranks, or else of those that still have
  /// inputs. Hooks divide by themselves.
  bool divide_by_initial_world_size = true;
};

/// Runs `body` on every rank, however often it calls the model, and waits until all are done.
void join(DataParallelModule& model, const std::function<void()>& body,
          const JoinOptions& options = {});

}  // namespace grapnel::dist
