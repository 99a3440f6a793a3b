#include "grapnel/dist/init.h"

#include <cstdlib>
#include <mutex>

#include "grapnel/base/rank.h"
#include "grapnel/base/warn.h"
#include "grapnel/dist/communicator_mpi.h"
#include "grapnel/dist/process_wide.h"

namespace grapnel::dist {

namespace {
bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

/// Processes that know nothing of each other would each train a model of their own, and nobody
/// would notice.
void warn_if_srun_left_out_mpi() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (!tasks || std::atoi(tasks) < 2) return;
  base::warn(str("dist::init: srun started ", tasks,
                 " processes without telling them about each other, so each is alone in a group of "
                 "one.\nStart them with srun --mpi=pmix, or with mpirun."));
}

constinit ProcessWide<ProcessGroup, std::chrono::milliseconds> alone{&single_rank};
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
    static ProcessGroup& world = *new ProcessGroup;
    std::lock_guard lock(mutex);
    if (!world) {
      const char* largest = std::getenv("GRAPNEL_MPI_LARGEST_COUNT");
      world = ProcessGroup(
          connect_mpi({.check_calls = options.check_calls || is_set("GRAPNEL_DIST_CHECK"),
                       .largest_count = largest ? std::atoll(largest) : 0,
                       .apart = is_set("GRAPNEL_MPI_APART")}),
          options.timeout);
      base::set_process_rank({world.rank(), world.size()});
    }
    return world;
  }
  if (options.backend == Backend::automatic) warn_if_srun_left_out_mpi();
  return alone.get(options.timeout);
}

}  // namespace grapnel::dist
