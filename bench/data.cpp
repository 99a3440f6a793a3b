/// Whether training waits for its data: compiled steps on Fashion-MNIST with batches from the
/// loader, beside the same steps on one batch.
///
///   bench_data [steps [rounds]]
///
/// Needs the data set (apt-get install dataset-fashion-mnist). Rounds visit all ways of loading in
/// turn. Prints the mean time of a step, and the median over the rounds of its ratio to the steps
/// without loading of the same round.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/networks.h"

using namespace grapnel;

namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

constexpr int64_t kBatch = 64;

struct Loading {
  std::string name;
  int64_t workers;  // -1: always the same batch
  std::vector<double> times, ratios;
};

void measure(const std::string& model, const data::DatasetPtr& images, int64_t steps, int rounds) {
  networks::Workload work(model);
  optim::AdamW adam(work.net->parameters(), optim::AdamWOptions(1e-3));
  auto step = compile([&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    const Tensor loss = cross_entropy(work.net->forward(model == "mlp" ? x.flatten(1) : x), y);
    loss.backward();
    adam.step();
    return loss.detach();
  });
  const data::DataLoader once(images, {.batch_size = kBatch, .shuffle = true, .drop_last = true});
  data::Epoch first = once.epoch(0);
  const data::Example batch = *first.begin();

  std::vector<Loading> ways = {{"the same batch", -1, {}, {}},
                               {"no workers", 0, {}, {}},
                               {"one worker", 1, {}, {}},
                               {"two workers", 2, {}, {}}};
  // Round -1 makes the kernels, which are ready some time later.
  for (int64_t round = -1; round < rounds; ++round) {
    for (Loading& way : ways) {
      double took;
      if (way.workers < 0) {
        const double begin = now_ms();
        for (int64_t i = 0; i < steps; ++i) step(batch.data, batch.target);
        took = now_ms() - begin;
      } else {
        const data::DataLoader loader(
            images,
            {.batch_size = kBatch, .shuffle = true, .workers = way.workers, .drop_last = true});
        data::Epoch epoch = loader.epoch(round + 1, loader.size() - steps);
        const double begin = now_ms();
        for (const data::Example& e : epoch) step(e.data, e.target);
        took = now_ms() - begin;
      }
      if (round < 0) continue;
      way.times.push_back(took / static_cast<double>(steps));
      way.ratios.push_back(way.times.back() / ways[0].times.back());
    }
    if (round < 0) std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  for (const Loading& way : ways)
    std::printf("%-6s %-16s %8.3f ms a step %8.3f\n", model.c_str(), way.name.c_str(),
                median(way.times), median(way.ratios));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  const auto images = std::make_shared<data::FashionMNIST>();

  const data::DataLoader loader(images, {.batch_size = kBatch, .shuffle = true});
  double begin = now_ms();
  data::Epoch epoch = loader.epoch(0);
  const double order = now_ms() - begin;
  begin = now_ms();
  int64_t batches = 0;
  for (const data::Example& e : epoch) batches += e.data.defined();
  std::printf("order of an epoch %.3f ms, a batch %.1f us\n", order,
              1e3 * (now_ms() - begin) / static_cast<double>(batches));

  for (const char* model : {"mlp", "cnn"}) measure(model, images, steps, rounds);
}
