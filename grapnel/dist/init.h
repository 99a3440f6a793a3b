/// dist::init: the group of all ranks, over whatever started this program.
#pragma once

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

}  // namespace grapnel::dist
