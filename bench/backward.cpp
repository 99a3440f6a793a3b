/// Backward passes with many hooks, in every mode. `bench/backward.py` runs it beside PyTorch, its
/// `torch.compile` and its compiled autograd.
///
///   bench_backward NETWORK MODE HOOKS [repeats]
///
///     NETWORK   mlp, optimizer, chain, wide
///     MODE      eager, backward, step
///     HOOKS     none, hooks, declared
///
/// Prints numbers that PyTorch's have to match, the median time in ms, the time of the first call,
/// and the peak of memory in MB. `backward` compiles backward passes, `step` whole steps. Kernels
/// are made before the first call returns, so that its time says what compiling costs; it is a cold
/// start if $GRAPNEL_CACHE_DIR is empty, a warm one after that.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/networks.h"
#include "grapnel/compile/passes.h"

using namespace grapnel;

namespace {

/// One thing to measure: `run` is timed, `results` are compared after three runs.
struct Work {
  std::function<void()> run;
  std::function<std::vector<double>()> results;
};
enum class Mode { eager, backward, step };

std::function<void()> in_mode(Mode mode, std::function<void()> fn) {
  if (mode == Mode::eager) return fn;
  if (mode == Mode::step) return compile(std::move(fn));
  return [fn = std::move(fn), scope = std::make_shared<std::optional<CompiledBackward>>()] {
    if (!*scope) scope->emplace();
    fn();
  };
}

Tensor weight(int64_t in, int64_t out, int seed) {  // keeps the size of what flows through
  return networks::numbers({in, out}, seed, 4 / std::sqrt(static_cast<double>(in)))
      .requires_grad_();
}

/// A step of an MLP 784-512-512-10, batch 64, with a clipping hook on every activation and every
/// parameter.
Work mlp(Mode mode, bool hooks) {
  struct State {
    std::vector<Tensor> w{weight(784, 512, 1), weight(512, 512, 2), weight(512, 10, 3)};
    std::vector<Tensor> b{zeros({512}, requires_grad()), zeros({512}, requires_grad()),
                          zeros({10}, requires_grad())};
    Tensor x = networks::numbers({64, 784}, 99, 2), y = networks::labels({64}, 10), loss;
    std::optional<optim::SGD> sgd;
  };
  auto s = std::make_shared<State>();
  const auto clip = [](const Tensor& g) { return g.clamp(-0.001, 0.001); };
  std::vector<Tensor> all = s->w;
  all.insert(all.end(), s->b.begin(), s->b.end());
  if (hooks)
    for (Tensor& p : all) p.register_hook(clip);
  s->sgd.emplace(all, optim::SGDOptions(0.1));
  auto step = [s, hooks, clip] {
    s->sgd->zero_grad();
    Tensor h = s->x;
    for (size_t i = 0; i < s->w.size(); ++i) {
      h = h.matmul(s->w[i]) + s->b[i];
      if (i + 1 < s->w.size()) h = h.relu();
      if (hooks) h.register_hook(clip);
    }
    const Tensor loss = cross_entropy(h, s->y);
    loss.backward();
    s->sgd->step();
    s->loss = loss.detach();
  };
  return {in_mode(mode, step), [s] { return std::vector<double>{s->loss.item<double>()}; }};
}

/// 16 layers of 1024 x 1024 with AdamW; with hooks, each parameter is stepped during the pass and
/// its gradient freed.
Work optimizer(Mode mode, bool in_backward) {
  struct State {
    std::vector<Tensor> w;
    Tensor x = networks::numbers({64, 1024}, 99, 2), loss;
    std::optional<optim::AdamW> adam;
    std::optional<optim::StepInBackward> stepping;
  };
  auto s = std::make_shared<State>();
  for (int i = 0; i < 16; ++i) s->w.push_back(weight(1024, 1024, i));
  s->adam.emplace(s->w, optim::AdamWOptions(1e-4));
  if (in_backward) s->stepping.emplace(*s->adam);
  auto step = [s, in_backward] {
    if (!in_backward) s->adam->zero_grad();
    Tensor h = s->x;
    for (const Tensor& w : s->w) h = h + h.matmul(w).tanh();
    const Tensor loss = h.square().mean();
    loss.backward();
    if (!in_backward) s->adam->step();
    s->loss = loss.detach();
  };
  return {in_mode(mode, step), [s] { return std::vector<double>{s->loss.item<double>()}; }};
}

/// g * 0.999, and nothing that could change: a hit need not call it.
struct Shrink {
  void compiled_args(CompiledNodeArgs& args) const { args.declare("shrink"); }
  Tensor operator()(const Tensor& g) const { return g * 0.999; }
};

/// The backward pass of a chain of 1,000 nodes, with a hook on every one.
Work chain(Mode mode, const std::string& hooks, int64_t elements) {
  struct State {
    Tensor x, y, g;
  };
  auto s = std::make_shared<State>();
  s->x = networks::numbers({elements}, 1, 1).requires_grad_();
  s->g = ones({elements});
  const Tensor a = networks::numbers({elements}, 2, 0.1) + 1;
  s->y = s->x;
  for (int i = 0; i < 500; ++i)
    for (int half = 0; half < 2; ++half) {
      s->y = half ? s->y.sin() : s->y * a;
      if (hooks == "hooks") s->y.register_hook([](const Tensor& g) { return g * 0.999; });
      if (hooks == "declared") s->y.register_hook(Shrink());
    }
  auto pass = [s] {
    s->x.reset_grad();
    s->y.backward(s->g, /*retain_graph=*/true);
  };
  return {in_mode(mode, pass), [s] {
            const Tensor grad = s->x.grad();
            return std::vector<double>{grad.sum().item<double>(), grad.abs().sum().item<double>()};
          }};
}

double time_ms(const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}
double median_ms(int repeats, const std::function<void()>& fn) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) times.push_back(time_ms(fn));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double memory_mb(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(what)) return std::stod(line.substr(std::strlen(what) + 1)) / 1024;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4)
    return std::printf(
               "usage: %s {mlp|optimizer|chain|wide} {eager|backward|step} {none|hooks|declared} "
               "[repeats]\n",
               argv[0]),
           2;
  const std::string what = argv[1], mode_name = argv[2], hooks = argv[3];
  const int repeats = argc > 4 ? std::atoi(argv[4]) : 50;
  const Mode mode = mode_name == "eager"      ? Mode::eager
                    : mode_name == "backward" ? Mode::backward
                                              : Mode::step;
  compiler::pass_options().background_kernels = false;
  if (what == "chain" || what == "wide") set_num_threads(1);

  const double empty_mb = memory_mb("VmRSS:");
  const Work work = what == "mlp"         ? mlp(mode, hooks != "none")
                    : what == "optimizer" ? optimizer(mode, hooks != "none")
                                          : chain(mode, hooks, what == "wide" ? 16384 : 4);
  const double first_ms = time_ms(work.run);
  work.run();
  work.run();
  for (const double v : work.results()) std::printf("%.9g ", v);
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak is counted from here
  const double median = median_ms(repeats, work.run);
  std::printf("\n%.4f ms, first %.1f ms, peak %.0f MB\n", median, first_ms,
              memory_mb("VmHWM:") - empty_mb);
}
