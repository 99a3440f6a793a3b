/// Trains, stops in the middle, and goes on from the file as if nothing had happened.
///
///   checkpoint [file]
#include <cstdio>
#include <filesystem>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

struct Run {
  nn::Linear net{3, 1};
  optim::Adam opt{net->parameters(), optim::AdamOptions(0.1)};
  int64_t step = 0;
  Checkpoint state;
  Run() {
    state.add("model", net)
        .add("optimizer", opt)
        .add("random", default_generator())
        .add("step", step);
  }
  void advance(int64_t to) {
    for (; step < to; ++step) {
      const Tensor x = randn({16, 3}), y = (x * tensor({1.0, -2.0, 0.5})).sum({1}, true);
      opt.zero_grad();
      mse_loss(net(x), y).backward();
      opt.step();
    }
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const std::filesystem::path file =
      argc > 1 ? std::filesystem::path(argv[1])
               : std::filesystem::temp_directory_path() / "grapnel-example.safetensors";
  manual_seed(1);
  Run whole;
  whole.advance(50);
  whole.state.save(file);
  whole.advance(100);

  manual_seed(2);
  Run resumed;
  resumed.state.load(file);
  resumed.advance(100);
  const bool same = resumed.net->weight.equal(whole.net->weight);
  std::printf("weights %.3f %.3f %.3f, %s bits after the restart\n",
              whole.net->weight[0][0].item<double>(), whole.net->weight[0][1].item<double>(),
              whole.net->weight[0][2].item<double>(), same ? "the same" : "other");
  if (argc <= 1) std::filesystem::remove(file);
  return same ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "checkpoint: %s\n", e.what());
  return 1;
}
