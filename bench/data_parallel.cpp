/// A training step of a 10 M-parameter MLP on several ranks, per hook: mpirun -np 2
/// bench_data_parallel. bench/data_parallel.py is the same in PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

/// 10.3 M parameters.
nn::Sequential make_net() {
  return nn::Sequential(nn::Linear(1024, 2048), nn::ReLU(), nn::Linear(2048, 2048), nn::ReLU(),
                        nn::Linear(2048, 1920), nn::ReLU(), nn::Linear(1920, 10));
}

}  // namespace

int main() {
  const dist::ProcessGroup group = dist::init();
  set_num_threads(1);  // two ranks on two cores
  const auto run = [&](const char* name, auto&& register_hook) {
    manual_seed(1);
    nn::Sequential net = make_net();
    dist::DistributedDataParallel model(net, group);
    register_hook(model);
    optim::SGD optimizer(model.parameters(), 0.001);
    const Tensor x = randn({64, 1024}), y = zeros({64}, kInt64);
    std::vector<double> times;
    uint64_t bytes = 0;
    double exposed = 0;
    for (int i = 0; i < 13; ++i) {
      if (i == 3) {
        bytes = model.group().bytes_sent();
        exposed = model.stats().exposed_seconds;
      }
      group.barrier().wait();
      const auto begin = std::chrono::steady_clock::now();
      optimizer.zero_grad();
      cross_entropy(model(x), y).backward();
      optimizer.step();
      if (i >= 3)
        times.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    const double steps = static_cast<double>(times.size());
    if (group.rank() == 0)
      std::printf("%-22s %8.1f ms/step %10.2f MB/step %8.1f ms exposed\n", name,
                  1e3 * times[times.size() / 2],
                  static_cast<double>(model.group().bytes_sent() - bytes) / steps / 1e6,
                  1e3 * (model.stats().exposed_seconds - exposed) / steps);
  };
  namespace hooks = dist::hooks;
  run("noop", [](auto& m) { m.register_comm_hook(hooks::noop); });
  run("no hook", [](auto&) {});
  run("fp16", [](auto& m) { m.register_comm_hook(hooks::fp16_compress); });
  run("bf16", [](auto& m) { m.register_comm_hook(hooks::bf16_compress); });
  run("quantize_per_tensor", [](auto& m) { m.register_comm_hook(hooks::quantize_per_tensor); });
  run("power_sgd rank 4", [](auto& m) {
    m.register_comm_hook(std::make_shared<hooks::PowerSGDState>(hooks::PowerSGDOptions{
                             .matrix_approximation_rank = 4, .start_powerSGD_iter = 2}),
                         hooks::power_sgd);
  });
}
