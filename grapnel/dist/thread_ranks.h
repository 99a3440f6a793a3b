/// Groups of ranks that are threads, before there are threads: init.h is what users call.
#pragma once

#include "grapnel/dist/init.h"

namespace grapnel::dist {

struct ThreadRanks {
  std::vector<ProcessGroup> groups;  ///< one end per rank
  /// A rank has ended with an exception: all groups of these ranks fail, those to come as well.
  std::function<void(const std::string&)> lose;
};

/// One rank per executor.
ThreadRanks make_thread_ranks(std::vector<std::shared_ptr<Executor>> executors,
                              const ThreadsOptions& options);

}  // namespace grapnel::dist
