/// `make demo`: trains a small network on Fashion-MNIST for two epochs, with two hooks on the weights of every layer: one clips
/// the gradient, one writes down how large it was. Ends with the accuracy on the test images, the speed, and what the hooks saw.
///
///   demo [folder of the data set]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numbers>
#include <string>
#include <vector>

#include "examples/support/images.h"
#include "examples/support/progress.h"
#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

constexpr int epochs = 2;
constexpr int64_t batch = 64;
constexpr double peak_rate = 2e-3, clip_norm = 1.0, target_accuracy = 0.86;

struct NetImpl : nn::Module {
  NetImpl()
      : fc1(register_module("fc1", nn::Linear(examples::image_pixels, 256))),
        fc2(register_module("fc2", nn::Linear(256, 128))),
        fc3(register_module("fc3", nn::Linear(128, examples::class_count))) {}
  Tensor forward(const Tensor& x) { return fc3(relu(fc2(relu(fc1(x))))); }
  nn::Linear fc1, fc2, fc3;
};
GRAPNEL_MODULE(Net);

/// What the hooks of one layer saw.
struct LayerLog {
  std::string name;
  int64_t count = 0, clipped = 0;
  double sum = 0, largest = 0;

  void add(double norm) {
    ++count;
    clipped += norm > clip_norm;
    sum += norm;
    largest = std::max(largest, norm);
  }
};

/// Two hooks on the weight of every layer. They run in order of registration, so the log sees gradients before they are clipped.
void attach_hooks(Net& net, std::vector<LayerLog>& logs) {
  logs.reserve(net->children().size());
  for (const auto& layer : net->named_children()) {
    LayerLog& log = logs.emplace_back(LayerLog{layer.key()});
    const Tensor weight = layer.value()->named_parameters()["weight"];
    weight.register_hook([&log](const Tensor& grad) { log.add(grad.norm().item<double>()); },
                         log.name + ": log");
    weight.register_hook(
        [](const Tensor& grad) { return grad * (clip_norm / grad.norm().clamp_min(clip_norm)); },
        log.name + ": clip");
  }
}

/// A folder that was asked for has to be there; without one, generated images will do.
examples::ImageSets load(const char* asked_for) {
  const std::filesystem::path folder = asked_for ? asked_for : "/usr/share/datasets/fashion-mnist";
  if (asked_for || std::filesystem::is_directory(folder)) {
    examples::ImageSets data = examples::load_image_sets(folder);
    std::printf("data   Fashion-MNIST, %lld images to train and %lld to test\n",
                static_cast<long long>(data.train.count()), static_cast<long long>(data.test.count()));
    return data;
  }
  std::printf(
      "data   There is no folder %s, so generated images stand in for Fashion-MNIST.\n"
      "       The real ones: apt-get install dataset-fashion-mnist\n",
      folder.c_str());
  return examples::generate_image_sets();
}

/// Up over the first tenth of the steps, then down to zero like a cosine.
double rate_at(double progress) {
  if (progress < 0.1) return peak_rate * progress / 0.1;
  return peak_rate * 0.5 * (1 + std::cos(std::numbers::pi * (progress - 0.1) / 0.9));
}

/// Images per second.
double train(Net& net, const examples::Images& data) {
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(peak_rate));
  const int64_t total = epochs * data.count();
  int64_t done = 0;
  double seconds = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    examples::Progress progress("epoch " + std::to_string(epoch) + "/" + std::to_string(epochs), data.count(),
                                "images");
    const Tensor order = randperm(data.count());
    double loss_sum = 0;
    int64_t seen = 0;
    for (const Tensor& picked : order.split(batch)) {
      for (auto& group : optimizer.param_groups())
        group.options().set_lr(rate_at(static_cast<double>(done) / static_cast<double>(total)));
      const Tensor loss =
          cross_entropy(net(data.pixels.index_select(0, picked)), data.labels.index_select(0, picked));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();

      loss_sum += loss.item<double>() * static_cast<double>(picked.numel());
      seen += picked.numel();
      done += picked.numel();
      char note[32];
      std::snprintf(note, sizeof note, "loss %.3f", loss_sum / static_cast<double>(seen));
      progress.update(seen, note);
    }
    seconds += progress.elapsed();
  }
  return static_cast<double>(total) / seconds;
}

/// The share of images whose class is found.
double accuracy(Net& net, const examples::Images& data) {
  const NoGradGuard no_grad;
  int64_t right = 0;
  for (int64_t begin = 0; begin < data.count(); begin += 1000) {
    const int64_t size = std::min<int64_t>(1000, data.count() - begin);
    const Tensor found = net(data.pixels.narrow(0, begin, size)).argmax(1);
    right += found.eq(data.labels.narrow(0, begin, size)).sum().item<int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(data.count());
}

void print_results(double share, double speed, const std::vector<LayerLog>& logs) {
  std::printf("\ntest accuracy    %8.2f %%\n", 100 * share);
  std::printf("training speed   %8.0f images/s\n", speed);
  std::printf("\nWhat the hooks saw (gradient norms; clipped above %.1f)\n\n", clip_norm);
  std::printf("  %-6s  %9s  %9s  %9s  %8s\n", "layer", "gradients", "mean norm", "max norm", "clipped");
  for (const LayerLog& log : logs) {
    const double count = static_cast<double>(std::max<int64_t>(log.count, 1));
    std::printf("  %-6s  %9lld  %9.4f  %9.4f  %6.1f %%\n", log.name.c_str(),
                static_cast<long long>(log.count), log.sum / count, log.largest,
                100 * static_cast<double>(log.clipped) / count);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const examples::ImageSets data = load(argc > 1 ? argv[1] : nullptr);
  manual_seed(1);
  Net net;
  std::vector<LayerLog> logs;
  attach_hooks(net, logs);
  std::printf("model  784-256-128-10, AdamW, batches of %lld, %d threads\n\n", static_cast<long long>(batch),
              get_num_threads());

  const double speed = train(net, data.train);
  const double share = accuracy(net, data.test);
  print_results(share, speed, logs);
  if (share >= target_accuracy) return 0;
  std::fprintf(stderr, "\ndemo: the accuracy is below %.0f %%, which two epochs should reach.\n",
               100 * target_accuracy);
  return 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "demo: %s\n", e.what());
  return 1;
}
