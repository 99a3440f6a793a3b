#include "grapnel/dist/init.h"

#include <cstdlib>
#include <mutex>

#include "grapnel/base/rank.h"
#include "grapnel/dist/communicator_mpi.h"
#include "grapnel/dist/run_threads.h"

namespace grapnel::dist {

namespace {
bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}
}  // namespace

bool launched_by_mpi() {
  // mpirun of Open MPI, srun with PMIx, srun with PMI.
  return is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK") || is_set("PMI_RANK");
}

ProcessGroup init(const InitOptions& options) {
  if (ProcessGroup own = group_of_this_thread(); own && options.backend != Backend::mpi) return own;
  if (options.backend == Backend::mpi ||
      (options.backend == Backend::automatic && launched_by_mpi())) {
    static std::mutex mutex;
    static ProcessGroup world;
    std::lock_guard lock(mutex);
    if (!world) {
      const char* largest = std::getenv("GRAPNEL_MPI_LARGEST_COUNT");
      world = ProcessGroup(
          connect_mpi({.check_calls = options.check_calls || is_set("GRAPNEL_DIST_CHECK"),
                       .largest_count = largest ? std::atoll(largest) : 0}),
          options.timeout);
      base::set_process_rank({world.rank(), world.size()});
    }
    return world;
  }
  static const ProcessGroup alone = single_rank(options.timeout);
  return alone;
}

}  // namespace grapnel::dist
