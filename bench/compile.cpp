/// What compiling buys: recording cost, a pointwise chain, an MLP step with hooks. Results are checked before anything is timed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Median of `repeats` runs, in ms.
template <class F>
double median_ms(F&& f, int repeats) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = now_ms();
    f();
    times.push_back(now_ms() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "wrong result: %s\n", what);
  std::exit(1);
}

/// Kernels are made in the background; the second call of a settled program runs them.
template <class F>
void warm_up(F&& f) {
  for (int i = 0; i < 5; ++i) {
    f();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

void recording() {
  const Tensor x = ones({4});
  auto chain = [&] {
    Tensor y = x;
    for (int i = 0; i < 1000; ++i) y = y * 1.0001;
    return y;
  };
  auto f = compile(chain);
  f();
  const double with = median_ms(f, 50), eager = median_ms(chain, 50);
  // What recording alone costs: trace() records and runs nothing.
  const double traced = median_ms([&] { trace(chain, {}); }, 50);
  std::printf("chain of 1000 small ops       eager %7.3f ms   compiled %7.3f ms   record and print-ready graph %7.3f ms\n", eager, with, traced);
}

Tensor chain48(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < 12; ++i) y = (y * 1.01 + 0.02).tanh() * 0.99;
  return y;
}

void pointwise_chain() {
  auto run = [](Tensor x) {
    x.reset_grad();
    chain48(x).sum().backward();
    return x.grad();
  };
  Tensor a = rand({1000000}).requires_grad_(), b = a.detach().clone().requires_grad_();
  auto f = compile(run);
  require(run(a).equal(f(b)), "chain of 48");
  warm_up([&] { f(b); });
  require(run(a).equal(f(b)), "chain of 48, fused");
  std::printf("48 ops on 1M, fwd+bwd         eager %7.2f ms   compiled %7.2f ms   (%s)\n", median_ms([&] { run(a); }, 9), median_ms([&] { f(b); }, 9),
              f.stats().str().c_str());
}

void mlp(bool hooks) {
  manual_seed(1);
  Tensor w1 = (randn({784, 512}) * 0.05).requires_grad_(), w2 = (randn({512, 512}) * 0.05).requires_grad_(), w3 = (randn({512, 10}) * 0.05).requires_grad_();
  Tensor b1 = zeros({512}, requires_grad()), b2 = zeros({512}, requires_grad()), b3 = zeros({10}, requires_grad());
  std::vector<Tensor> parameters{w1, b1, w2, b2, w3, b3};
  const Tensor x = randn({64, 784}), y = randint(10, {64});
  auto clip = [&](const Tensor& t) {
    if (hooks) t.register_hook([](const Tensor& g) { return g.clamp(-0.01, 0.01); });
    return t;
  };
  auto step = [&] {
    for (Tensor& p : parameters) p.reset_grad();
    const Tensor h1 = clip((x.matmul(w1) + b1).relu()), h2 = clip((h1.matmul(w2) + b2).relu());
    const Tensor loss = cross_entropy(clip(h2.matmul(w3) + b3), y);
    loss.backward();
    NoGradGuard off;
    for (Tensor& p : parameters) p.sub_(p.grad() * 0.01);
    return loss.detach();
  };
  auto f = compile(step);
  const double cold = median_ms(f, 1);
  warm_up(f);
  const double compiled = median_ms(f, 101), eager = median_ms(step, 101);
  std::printf("MLP step, %s hooks       eager %7.3f ms   compiled %7.3f ms   first call %.1f ms   (%s)\n", hooks ? "with clip" : "without  ", eager, compiled,
              cold, f.stats().str().c_str());
}

}  // namespace

int main() {
  std::printf("threads: %d\n", get_num_threads());
  recording();
  pointwise_chain();
  mlp(false);
  mlp(true);
}
