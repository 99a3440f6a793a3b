/// What averaging costs: bandwidth of all_reduce beside plain MPI_Allreduce, and the time of small
/// ones. mpirun -np 2 bench_all_reduce
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

double seconds(const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main() {
  int level = 0, rank = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::atexit([] { MPI_Finalize(); });  // after the library has ended its thread
  const dist::ProcessGroup group = dist::init();
  if (rank == 0)
    std::printf("%10s %14s %14s %8s\n", "bytes", "plain MPI us", "all_reduce us", "ratio");
  for (int64_t n : {1, 1024, 16384, 262144, 2621440, 16777216}) {
    Tensor t = ones({n});
    std::vector<double> plain, ours;
    for (int i = 0; i < 15; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      plain.push_back(seconds([&] {
        MPI_Allreduce(MPI_IN_PLACE, t.data_ptr(), static_cast<int>(n), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      }));
      t.fill_(1);
      MPI_Barrier(MPI_COMM_WORLD);
      ours.push_back(seconds([&] { group.all_reduce(t).wait(); }));
      check(t[n - 1].item<float>() == static_cast<float>(group.size()), "all_reduce gave ",
            t[n - 1].item<float>());
      t.fill_(1);
    }
    if (rank == 0)
      std::printf("%10lld %14.1f %14.1f %7.0f%%\n", static_cast<long long>(4 * n),
                  1e6 * median(plain), 1e6 * median(ours), 100 * median(plain) / median(ours));
  }
  group.barrier().wait();
}
