/// Whole training steps of four networks, eager and compiled. `bench/training.py` runs it beside
/// PyTorch.
///
///   bench_training {mlp|cnn|lstm|gpt} {eager|compiled|apart} [steps]
///
/// `apart` is compiled, with nothing fused to products. Prints the losses of the first steps, which
/// PyTorch's have to match, the median time of a step and, on stderr, its memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/networks.h"
#include "grapnel/base/allocator.h"
#include "grapnel/compile/passes.h"

using namespace grapnel;

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "mlp", mode = argc > 2 ? argv[2] : "eager";
  const int steps = argc > 3 ? std::atoi(argv[3]) : 30;

  const networks::Workload work(model);
  optim::AdamW adam(work.net->parameters(), optim::AdamWOptions(1e-3));
  auto step = [&] {
    adam.zero_grad();
    const Tensor loss = cross_entropy(work.net->forward(work.x), work.y);
    loss.backward();
    adam.step();
    return loss.detach();
  };
  compiler::pass_options().epilogues = compiler::pass_options().prologues =
      mode != "apart";
  auto compiled = compile(step);
  const auto run = [&] { return mode == "eager" ? step() : compiled(); };

  for (int i = 0; i < 5; ++i) std::printf("%.6f ", static_cast<double>(run().item<float>()));
  if (mode != "eager") {  // kernels are made in the background
    std::this_thread::sleep_for(std::chrono::seconds(3));
    for (int i = 0; i < 5; ++i) run();
  }
  reset_peak_memory();
  const size_t before = memory_stats().in_use;
  run();
  const size_t peak = memory_stats().peak - before;
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::sort(times.begin(), times.end());
  std::printf("\n%.3f ms\n", times[times.size() / 2]);
  std::fprintf(stderr, "%.2f MB beside what lives between steps\n",
               static_cast<double>(peak) / 1e6);
  if (mode != "eager") std::fprintf(stderr, "%s\n", compiled.stats().str().c_str());
}
