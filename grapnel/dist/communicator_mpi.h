/// Ranks that are processes, started by mpirun or srun.
#pragma once

#include "grapnel/dist/communicator.h"

namespace grapnel::dist {

/// How ranks over MPI run.
struct MpiOptions {
  /// Ranks compare their calls before each collective, so that different ones are told apart
  /// instead of waiting for each other.
  bool check_calls = false;
  /// Larger counts are sent in pieces; 0 for what MPI allows.
  int64_t largest_count = 0;
  /// Ranks send as if each had a machine of its own; for tests.
  bool apart = false;
};

/// The communicator of all processes. Loads libgrapnel_mpi.so and starts the communication thread;
/// once per process.
std::shared_ptr<Communicator> connect_mpi(const MpiOptions& options);

class MpiEngine;
/// The communicator of all ranks of an engine, which must outlive it.
std::shared_ptr<Communicator> world_of(MpiEngine& engine);

/// Communicators of MPI that are open in this process. Those of groups that are gone are freed,
/// soon after.
int open_mpi_lines();

}  // namespace grapnel::dist
