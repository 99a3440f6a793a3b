/// dist::init: the group of all ranks, over whatever started this program. And threads of this process as
/// ranks, for tests and for programs that embed several replicas:
///
///   dist::run_threads(2, [](dist::ProcessGroup group) { ... });
///
/// Results are the same in every run: sums are made in the order of ranks. An exception on one rank
/// makes the others' collectives fail with CommAborted, and reaches the caller when all threads
/// have ended.
#pragma once

#include <functional>

#include "grapnel/dist/process_group.h"

namespace grapnel::dist {

/// What carries messages between ranks.
enum class Backend : uint8_t {
  automatic,  ///< MPI when mpirun or srun started this process, else threads
  threads,    ///< inside run_threads the group of its ranks, else a group of one
  mpi,
};
/// How ranks find each other.
struct InitOptions {
  Backend backend = Backend::automatic;
  std::chrono::milliseconds timeout = kDefaultTimeout;
  /// MPI: ranks compare their calls before each collective, so that different ones are reported by
  /// name instead of ending in a timeout. Costs a message per collective. Also switched on by
  /// GRAPNEL_DIST_CHECK=1. Threads always compare.
  bool check_calls = false;
};

/// The group of all ranks. Calling it again gives the same one.
ProcessGroup init(const InitOptions& options = {});

/// Whether the environment says that a launcher of MPI programs started this process.
bool launched_by_mpi();

/// How ranks in one process run.
struct ThreadsOptions {
  std::chrono::milliseconds timeout = kDefaultTimeout;
  /// Ranks [0, n) are said to be on machine 0, the next n on machine 1 and so on; 0: all on one.
  int ranks_per_machine = 0;
};

/// Calls `fn(group)` on `count` threads, each a rank, and waits for them.
void run_threads(int count, const std::function<void(ProcessGroup)>& fn,
                 const ThreadsOptions& options = {});

/// Inside run_threads the group of the calling rank, else none.
ProcessGroup group_of_this_thread();

/// A group of one: the calling program by itself.
ProcessGroup single_rank(std::chrono::milliseconds timeout = kDefaultTimeout);

}  // namespace grapnel::dist
