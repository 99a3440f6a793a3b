#include "grapnel/dist/init.h"

#include <cstdlib>

#include "grapnel/dist/run_threads.h"

namespace grapnel::dist {

bool launched_by_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK") || std::getenv("PMI_RANK"); }

ProcessGroup init(const InitOptions& options) {
  static const ProcessGroup alone = single_rank(options.timeout);
  return alone;
}

}  // namespace grapnel::dist
