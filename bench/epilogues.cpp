/// What running pointwise work on the tiles of products and convolutions buys: time and memory with
/// it, without it, and in eager mode.
///
///   bench_epilogues [threads]
///
/// Results are compared bit by bit before anything is timed; times are the best of many runs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "grapnel/base/allocator.h"
#include "grapnel/compile/passes.h"
#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

struct Cost {
  double ms = 1e9, mb = 0;
};

template <class F>
double once_ms(F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

template <class F>
double peak_mb(F& f) {
  f();
  reset_peak_memory();
  const size_t before = memory_stats().in_use;
  f();
  return static_cast<double>(memory_stats().peak - before) / 1e6;
}

template <class F>
void row(const char* what, F run) {
  compiler::PassOptions& passes = compiler::pass_options();
  passes.background_kernels = false;
  // Graphs are shared by functions that record the same; only an emptied cache plans anew.
  reset_compile_cache();
  passes.epilogues = passes.prologues = true;
  auto fused = compile(run);
  const Tensor result = fused();
  if (!result.equal(run())) {
    std::fprintf(stderr, "wrong result: %s\n", what);
    std::exit(1);
  }
  CompileOptions other;
  other.numerics = Numerics::fast;  // a key of its own
  passes.epilogues = passes.prologues = false;
  auto apart = compile(run, other);
  apart();
  passes.epilogues = passes.prologues = true;
  Cost eager, with, without;
  eager.mb = peak_mb(run), with.mb = peak_mb(fused), without.mb = peak_mb(apart);
  double spent = 0;
  // In turn, so that whatever else the machine does disturbs all three alike.
  for (int i = 0; i < 10 || (spent < 1500 && i < 5000); ++i) {
    const double a = once_ms(run), b = once_ms(fused), c = once_ms(apart);
    eager.ms = std::min(eager.ms, a), with.ms = std::min(with.ms, b),
    without.ms = std::min(without.ms, c);
    spent += a + b + c;
  }
  std::printf("%-46s eager %8.3f ms %7.2f MB   apart %8.3f ms %7.2f MB   fused %8.3f ms %7.2f MB\n",
              what, eager.ms, eager.mb, without.ms, without.mb, with.ms, with.mb);
  std::fflush(stdout);
}

/// A function of one tensor, with its gradient.
template <class F>
auto with_gradient(F fn, const Tensor& x) {
  return [fn, x] {
    const Tensor leaf = x.detach().requires_grad_();
    fn(leaf).sum().backward();
    return leaf.grad();
  };
}

void products() {
  for (const int64_t rows : {64, 512, 4096}) {
    const Tensor x = randn({rows, 256}), w = randn({1024, 256}), b = randn({1024}),
                 residual = randn({rows, 1024});
    char name[64];
    std::snprintf(name, sizeof name, "relu of a linear layer, %d x 256 x 1024",
                  static_cast<int>(rows));
    row(name, [=] { return relu(linear(x, w, b)); });
    std::snprintf(name, sizeof name, "gelu and residual, %d x 256 x 1024", static_cast<int>(rows));
    row(name, [=] { return residual + gelu(linear(x, w, b)); });
    row("  with the gradient of x",
        with_gradient([=](const Tensor& t) { return gelu(linear(gelu(t), w, b)); }, x));
  }
  const Tensor x = randn({2048, 256}).to(kBFloat16), w = randn({1024, 256}).to(kBFloat16),
               b = randn({1024}).to(kBFloat16);
  row("bf16, relu of 2048 x 256 x 1024", [=] { return relu(linear(x, w, b)); });
  const Tensor q = randn({32, 128, 64}), k = randn({32, 64, 128}), mask = randn({128, 128});
  row("scale and mask of 32 x 128 x 64 x 128", [=] { return matmul(q, k) * 0.125 + mask; });
}

void prologues() {
  const Tensor x = randn({4096, 512}), w = randn({512, 256});
  row("gelu before a product, 4096 x 512 x 256", [=] { return matmul(gelu(x), w); });
  row("  and behind it", [=] { return gelu(matmul(gelu(x), w)); });
}

void convolutions() {
  const Tensor x = randn({64, 16, 28, 28}), w = randn({32, 16, 3, 3}), b = randn({32});
  row("relu of a convolution, 64 x 16 x 28 x 28", [=] { return relu(conv2d(x, w, b, {1}, {1})); });
  row("  with the gradient of x",
      with_gradient([=](const Tensor& t) { return relu(conv2d(relu(t), w, b, {1}, {1})); }, x));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_num_threads(std::atoi(argv[1]));
  manual_seed(1);
  products();
  prologues();
  convolutions();
}
