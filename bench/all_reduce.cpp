/// What averaging costs: all_reduce beside plain MPI_Allreduce.
///   mpirun -np 2 bench_all_reduce [BYTES ...]
///
/// The two take turns call by call, since a machine is not as fast at one moment as at another; what
/// is reported are medians, and how far the ratios of a tenth of the calls lie apart.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

template <class Fn>
double microseconds(Fn&& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}
double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct Times {
  std::vector<double> plain, ours;

  void add(const dist::ProcessGroup& group, const Tensor& t) {
    const auto n = static_cast<int>(t.numel());
    t.fill_(1);
    MPI_Barrier(MPI_COMM_WORLD);
    plain.push_back(microseconds(
        [&] { MPI_Allreduce(MPI_IN_PLACE, t.data_ptr(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }));
    t.fill_(1);
    MPI_Barrier(MPI_COMM_WORLD);
    ours.push_back(microseconds([&] { group.all_reduce(t).wait(); }));
    check(t[n - 1].item<float>() == static_cast<float>(group.size()), "all_reduce gave ",
          t[n - 1].item<float>());
  }
  double ratio(size_t from, size_t to) const {
    const auto part = [&](const std::vector<double>& v) {
      return median({v.begin() + static_cast<int64_t>(from), v.begin() + static_cast<int64_t>(to)});
    };
    return 100 * part(plain) / part(ours);
  }
  void print(int64_t bytes) const {
    std::vector<double> ratios;
    const size_t tenth = plain.size() / 10;
    for (size_t i = 0; i < 10; ++i) ratios.push_back(ratio(i * tenth, (i + 1) * tenth));
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    std::printf("%10lld %7zu %14.1f %14.1f %7.0f%% %6.0f-%.0f%%\n", static_cast<long long>(bytes),
                plain.size(), median(plain), median(ours), ratio(0, plain.size()), *low, *high);
  }
};

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::atexit([] { MPI_Finalize(); });  // after the library has ended its thread
  const dist::ProcessGroup group = dist::init();
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = {4, 4096, 65536, 262144, 1048576, 4194304, 10485760, 67108864};
  if (rank == 0)
    std::printf("%10s %7s %14s %14s %8s %10s\n", "bytes", "calls", "plain MPI us", "all_reduce us",
                "ratio", "spread");
  for (const int64_t bytes : sizes) {
    const Tensor t = ones({std::max<int64_t>(1, bytes / 4)});
    Times times;
    times.add(group, t);  // fresh memory is slow
    times = {};
    // About as much time for each size; all ranks must make the same number of calls.
    const auto calls = std::clamp<int64_t>((int64_t{1} << 29) / bytes, 30, 3000);
    for (int64_t i = 0; i < calls; ++i) times.add(group, t);
    if (rank == 0) times.print(4 * t.numel());
  }
  group.barrier().wait();
}
