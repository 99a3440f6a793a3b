/// What each hook of the library costs a compiled training step.
///
///   bench_hooks [mlp|cnn|gpt] [rounds] [--cpu] [--only=NAME]
///
/// Rounds visit the step without hooks and with each of them in turn, a few steps each, so that
/// what disturbs the machine disturbs all alike. Prints the median step of each, and the median
/// over the rounds of its ratio to the plain steps of the same round. --cpu: one thread, and its
/// processor time instead of wall time.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/networks.h"

using namespace grapnel;

namespace {

clockid_t timer = CLOCK_MONOTONIC;
double now_ms() {
  timespec t;
  clock_gettime(timer, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What a hook does around a step. `in_step` is part of the compiled function, `after_step` is not.
struct Hooked {
  std::function<void()> in_step, after_step, remove;
  std::optional<hooks::SavedHook> saved;
};

struct Case {
  std::string name;
  std::function<Hooked(nn::Module&)> attach;
  std::vector<double> times, ratios;
};

/// The hook on every parameter.
template <class Make>
Case on_parameters(std::string name, Make make) {
  return {std::move(name),
          [make](nn::Module& net) {
            std::vector<HookHandle> handles;
            for (const Tensor& p : net.parameters()) handles.push_back(hooks::attach(p, make(p)));
            return Hooked{.in_step = {},
                          .after_step = {},
                          .remove =
                              [handles]() mutable {
                                for (HookHandle& h : handles) h.remove();
                              },
                          .saved = {}};
          },
          {},
          {}};
}
/// An object that watches while it lives.
template <class Watcher>
Hooked watching(std::shared_ptr<Watcher> w, std::function<void()> in_step,
                std::function<void()> after_step) {
  return {std::move(in_step), std::move(after_step), [w]() mutable { w.reset(); }, {}};
}
Case saving(std::string name, std::function<hooks::SavedHook()> make) {
  return {std::move(name),
          [make](nn::Module&) {
            return Hooked{.in_step = {}, .after_step = {}, .remove = [] {}, .saved = make()};
          },
          {},
          {}};
}

std::vector<Case> all_cases(const std::filesystem::path& folder) {
  std::vector<Case> cases;
  cases.push_back({"none",
                   [](nn::Module&) {
                     return Hooked{.in_step = {}, .after_step = {}, .remove = [] {}, .saved = {}};
                   },
                   {},
                   {}});
  cases.push_back(on_parameters("ClipValue", [](const Tensor&) { return hooks::ClipValue{0.1}; }));
  cases.push_back(on_parameters("ClipNorm", [](const Tensor&) { return hooks::ClipNorm{1.0}; }));
  cases.push_back(on_parameters("Scale", [](const Tensor&) { return hooks::Scale{0.5}; }));
  cases.push_back(on_parameters(
      "ClipNorm | Scale", [](const Tensor&) { return hooks::ClipNorm{1.0} | hooks::Scale{0.5}; }));
  cases.push_back(on_parameters("Noise", [](const Tensor&) { return hooks::Noise{1e-3}; }));
  cases.push_back(on_parameters(
      "Mask", [](const Tensor& p) { return hooks::Mask{networks::numbers(p.shape(), 5, 2) > 0}; }));
  cases.push_back(on_parameters("Freeze", [](const Tensor&) { return hooks::Freeze{}; }));
  cases.push_back(on_parameters("Reverse", [](const Tensor&) { return hooks::Reverse{1.0}; }));
  cases.push_back({"Statistics",
                   [](nn::Module& net) {
                     auto w = std::make_shared<hooks::Statistics>();
                     w->attach(net);
                     return watching(w, {}, {});
                   },
                   {},
                   {}});
  cases.push_back({"Statistics, 32 bins",
                   [](nn::Module& net) {
                     auto w = std::make_shared<hooks::Statistics>(
                         hooks::StatisticsOptions{.bins = 32, .low = -0.1, .high = 0.1});
                     w->attach(net);
                     return watching(w, {}, {});
                   },
                   {},
                   {}});
  cases.push_back({"GradientLogger, every 10",
                   [folder](nn::Module& net) {
                     auto writer = std::make_shared<hooks::JsonLinesWriter>(folder / "log.jsonl");
                     auto w = std::make_shared<hooks::GradientLogger>(
                         net, *writer, hooks::GradientLoggerOptions{.every = 10, .statistics = {}});
                     return watching(w, {}, [writer, l = w.get()] { l->step(); });
                   },
                   {},
                   {}});
  cases.push_back({"PerSampleNorms",
                   [](nn::Module& net) {
                     auto w = std::make_shared<hooks::PerSampleNorms>(net);
                     auto norms = std::make_shared<Tensor>();
                     return watching(w, [n = w.get(), norms] { *norms = n->take(); }, {});
                   },
                   {},
                   {}});
  cases.push_back({"NanGuard",
                   [](nn::Module& net) {
                     auto w = std::make_shared<hooks::NanGuard>(net);
                     return watching(w, {}, [g = w.get()] { g->check(); });
                   },
                   {},
                   {}});
  cases.push_back(saving("compress to bf16", [] { return hooks::compress(kBFloat16); }));
  cases.push_back(saving("deflate", [] { return hooks::deflate(); }));
  cases.push_back(saving("save_to_disk", [folder] { return hooks::save_to_disk(folder); }));
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "mlp", only;
  int rounds = 30;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--cpu")) timer = CLOCK_PROCESS_CPUTIME_ID, set_num_threads(1);
    else if (!std::strncmp(argv[i], "--only=", 7)) only = argv[i] + 7;
    else if (std::isdigit(argv[i][0])) rounds = std::atoi(argv[i]);
    else model = argv[i];
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / str("grapnel-bench-hooks-", getpid());
  std::filesystem::create_directories(folder);

  const networks::Workload work(model);
  optim::AdamW adam(work.net->parameters(), optim::AdamWOptions(1e-3));
  Hooked hooked;
  auto step = compile([&] {
    adam.zero_grad();
    std::optional<autograd::SavedTensorHooks> scope;
    if (hooked.saved) scope.emplace(hooked.saved->pack, hooked.saved->unpack);
    const Tensor loss = cross_entropy(work.net->forward(work.x), work.y);
    loss.backward();
    if (hooked.in_step) hooked.in_step();
    adam.step();
    return loss.detach();
  });
  const auto run = [&] {
    step();
    if (hooked.after_step) hooked.after_step();
  };

  std::vector<Case> cases = all_cases(folder);
  if (!only.empty())
    std::erase_if(cases,
                  [&](const Case& c) { return c.name != "none" && !c.name.starts_with(only); });
  // Some networks have parameters that no layer of the list knows.
  std::erase_if(cases, [&](const Case& c) {
    try {
      c.attach(*work.net).remove();
      return false;
    } catch (const Error& e) {
      std::printf("%s is left out: %s\n", c.name.c_str(), e.what());
      return true;
    }
  });
  // Round -1 makes the kernels, which are ready some time later.
  for (int round = -1; round < rounds; ++round) {
    for (Case& c : cases) {
      hooked = c.attach(*work.net);
      for (int i = 0; i < 2; ++i) run();
      constexpr int kSteps = 10;
      std::vector<double> times;
      for (int i = 0; i < kSteps; ++i) {
        const double begin = now_ms();
        run();
        times.push_back(now_ms() - begin);
      }
      hooked.remove();
      hooked = {};
      if (round < 0) continue;
      // Of a logger the rare expensive step counts too.
      double sum = 0;
      for (const double t : times) sum += t;
      c.times.push_back(c.name.starts_with("GradientLogger") ? sum / kSteps : median(times));
      c.ratios.push_back(c.times.back() / cases[0].times.back());
    }
    if (round < 0) std::this_thread::sleep_for(std::chrono::seconds(3));
  }
  std::filesystem::remove_all(folder);
  std::printf("%-26s %10s %8s\n", "hook", "ms a step", "ratio");
  for (const Case& c : cases)
    std::printf("%-26s %10.3f %8.3f\n", c.name.c_str(), median(c.times), median(c.ratios));
  std::fprintf(stderr, "%s\n", step.stats().str().c_str());
}
