/// What do single ops, chains, hooks, products, long tensors and a training step cost in eager
/// mode?
///
/// The same source is built against Grapnel (bench_eager) and, where it is installed, against
/// LibTorch (bench_eager_libtorch); bench/compare runs both and prints the table of
/// docs/performance.md. Alone, it prints the times of one library.
#include "large_workloads.h"
#include "small_workloads.h"

int main(int argc, char** argv) {
  std::vector<bench::Workload> all = bench::small_workloads();
  for (bench::Workload& w : bench::large_workloads()) all.push_back(std::move(w));
  return bench::run(all, argc, argv);
}
