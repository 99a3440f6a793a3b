/// What compiling buys: recording cost, fused chains and rows, an MLP step with hooks, cold and
/// warm starts. Results are checked before anything is timed; times are the best of many runs, so
/// that other programs on the machine disturb little.
///
///   bench_compile [--cpu] [--table] [recording] [chain] [bandwidth] [rows] [gelu] [mlp] [long]
///
/// --cpu measures the processor time of one thread. --table prints lines for bench/compile.py,
/// which runs the same rows in PyTorch.
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/networks.h"
#include "grapnel/base/thread_pool.h"
#include "grapnel/capture/recorder.h"
#include "grapnel/codegen/jit.h"
#include "grapnel/compile/passes.h"
#include "grapnel/grapnel.h"

using namespace grapnel;
using networks::labels, networks::numbers;

namespace {

/// Wall time; with --cpu, of one thread, the processor time of the program, which a busy machine
/// changes little.
bool processor_time = false;
bool table = false;
double now_ms() {
  timespec t;
  clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

/// Best of at least `repeats` runs and a quarter of a second, in ms.
template <class F>
double best_ms(F&& f, int repeats = 7) {
  double best = 1e9, spent = 0;
  for (int i = 0; i < repeats || (spent < 250 && i < 20000); ++i) {
    const double start = now_ms();
    f();
    const double took = now_ms() - start;
    best = std::min(best, took);
    spent += took;
  }
  return best;
}

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "wrong result: %s\n", what);
  std::exit(1);
}

/// A line for bench/compile.py: the sum of magnitudes stands for the result.
void line(const char* what, double eager, double compiled, const Tensor& result) {
  std::printf("%s\t%.4f\t%.4f\t%.9g\n", what, eager, compiled,
              result.to(kFloat64).abs().sum().item<double>());
  std::fflush(stdout);
}

/// Eager against compiled, which must give the same bits, for a function without arguments that
/// returns a tensor.
template <class F>
void row(const char* what, F&& run) {
  auto f = compile(run);
  const Tensor result = run();
  require(result.equal(f()), what);
  // Kernels are made in the background, on a core that the timings need.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (table) return line(what, best_ms(run), best_ms(f), result);
  compiler::pass_options().sweeps = false;
  auto apart = compile(run);
  reset_compile_cache();
  apart();
  const double without = best_ms(apart);
  compiler::pass_options().sweeps = true;
  reset_compile_cache();
  f();
  const CompileStats s = f.stats();
  std::printf(
      "%-38s eager %8.3f ms   compiled %8.3f ms   without sweeps %8.3f ms   %lld ops in %lld "
      "kernels\n",
      what, best_ms(run), best_ms(f), without, static_cast<long long>(s.fused_calls / s.graphs),
      static_cast<long long>(s.kernels / s.graphs));
  std::fflush(stdout);
}

class Nowhere final : public record::Sink {
 public:
  void run(capture::Trace&) override {}
  void on_break(const record::Break&, const capture::Trace&) override {}
};

void recording() {
  constexpr int kOps = 1000;
  const Tensor x = ones({4}), z = ones({4});
  auto numbers = [&] {
    Tensor y = x;
    for (int i = 0; i < kOps; ++i) y = y * 1.0001;
    return y;
  };
  auto tensors = [&] {
    Tensor y = x;
    for (int i = 0; i < kOps; ++i) y = y * z;
    return y;
  };
  auto record_only = [](auto& fn) {
    return best_ms([&] {
      Nowhere nowhere;
      record::RecordScope scope(nowhere);
      fn();
      scope.finish();
    });
  };
  std::printf(
      "recording an op                        tensor * tensor %.1f ns   tensor * number %.1f ns\n",
      record_only(tensors) * 1e6 / kOps, record_only(numbers) * 1e6 / kOps);
  auto f = compile(tensors);
  f();
  std::printf(
      "1000 ops on 4 elements                 eager %.1f ns per op   compiled %.1f ns per op\n",
      best_ms(tensors) * 1e6 / kOps, best_ms(f) * 1e6 / kOps);
}

void chain() {
  const Tensor x = numbers({1000000}, 1, 1).requires_grad_();
  row("48 ops on 1M, forward and backward", [&]() mutable {
    Tensor leaf = x;
    leaf.reset_grad();
    Tensor y = leaf;
    for (int i = 0; i < 12; ++i) y = (y * 1.01 + 0.02).tanh() * 0.99;
    y.sum().backward();
    return leaf.grad();
  });
}

void triad_piece(const float* a, const float* b, const float* c, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 4)
    _mm_stream_ps(out + i, _mm_add_ps(_mm_mul_ps(_mm_load_ps(a + i), _mm_load_ps(b + i)),
                                      _mm_load_ps(c + i)));
  _mm_sfence();
}
[[gnu::target("avx512f")]] void triad_piece_avx512(const float* a, const float* b, const float* c,
                                                   float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 16)
    _mm512_stream_ps(out + i,
                     _mm512_add_ps(_mm512_mul_ps(_mm512_load_ps(a + i), _mm512_load_ps(b + i)),
                                   _mm512_load_ps(c + i)));
  _mm_sfence();
}
/// a * b + c by hand, with stores past the caches: what the machine gives to three streams that are
/// read and one that is written.
void triad_by_hand(const float* a, const float* b, const float* c, float* out, int64_t n) {
  const auto piece = __builtin_cpu_supports("avx512f") ? triad_piece_avx512 : triad_piece;
  base::parallel_for(n, 16384, [&](int64_t begin, int64_t end) {
    piece(a + begin, b + begin, c + begin, out + begin, end - begin);
  });
}

/// How much of the machine's memory bandwidth a fused kernel reaches. All sides move the same bytes
/// with the same threads, too many for the caches.
void bandwidth() {
  constexpr int64_t kMany = 1 << 22;
  const Tensor a = numbers({kMany}, 1, 1), b = numbers({kMany}, 2, 1), c = numbers({kMany}, 3, 1),
               from = numbers({2 * kMany}, 4, 1);
  Tensor out = empty({kMany}), to = empty({2 * kMany});
  row("a * b + c on 4M", [&] { return a * b + c; });
  if (table) return;
  const float *pa = a.data_ptr<float>(), *pb = b.data_ptr<float>(), *pc = c.data_ptr<float>();
  float* const po = out.data_ptr<float>();
  auto fused = compile([&] { return a * b + c; });
  triad_by_hand(pa, pb, pc, po, kMany);
  require((out - fused()).abs().max().item<float>() < 1e-6f,
          "a * b + c by hand");  // which may be contracted
  auto rate = [&](auto&& run) { return 16e-6 * static_cast<double>(kMany) / best_ms(run); };
  const double copied = rate([&] { to.copy_(from); }),
               by_hand = rate([&] { triad_by_hand(pa, pb, pc, po, kMany); }), reached = rate(fused);
  std::printf(
      "%-38s copy %.1f GB/s   a * b + c by hand %.1f GB/s   fused %.1f GB/s, %.0f %% of the "
      "larger\n",
      "memory bandwidth", copied, by_hand, reached, 100 * reached / std::max(copied, by_hand));
}

void rows() {
  const Tensor x = numbers({4096, 512}, 1, 4).requires_grad_(), g = numbers({4096, 512}, 2, 1);
  const Tensor weight = numbers({512}, 3, 1), bias = numbers({512}, 4, 1);
  auto softmax_rows = [](const Tensor& t) {
    const Tensor e = exp(t - t.amax({-1}, true));
    return e / e.sum({-1}, true);
  };
  auto norm_rows = [&](const Tensor& t) {
    const Tensor c = t - t.mean({-1}, true);
    return c * (c.square().mean({-1}, true) + 1e-5).rsqrt() * weight + bias;
  };
  auto with_gradient = [&](auto fn) {
    return [&, fn] {
      Tensor leaf = x;
      leaf.reset_grad();
      fn(leaf).backward(g);
      return leaf.grad();
    };
  };
  const Tensor plain = x.detach();
  row("softmax by hand, 4096 x 512", [&] { return softmax_rows(plain); });
  row("softmax by hand, with its gradient", with_gradient(softmax_rows));
  row("the op softmax, with its gradient",
      with_gradient([](const Tensor& t) { return softmax(t, -1); }));
  row("layer norm by hand, 4096 x 512", [&] { return norm_rows(plain); });
  row("layer norm by hand, with its gradient", with_gradient(norm_rows));
  row("scaled and masked softmax", [&] { return softmax_rows(plain * 0.125 + bias); });
}

void gelu_mlp() {
  const Tensor x = numbers({512, 256}, 1, 2), w1 = numbers({256, 1024}, 2, 1),
               w2 = numbers({1024, 256}, 3, 1);
  const Tensor b1 = numbers({1024}, 4, 1), b2 = numbers({256}, 5, 1);
  row("gelu MLP, 512 x 256 x 1024", [&] { return gelu(x.matmul(w1) + b1).matmul(w2) + b2; });
}

/// How long the first call takes with nothing cached, and with kernels on disk only.
struct Starts {
  double cold, warm;
  explicit Starts(auto& f) : cold(start_ms(f)), warm(start_ms(f)) {}

 private:
  static double start_ms(auto& f) {
    reset_compile_cache();
    codegen::reset_jit_for_testing();
    const double start = now_ms();
    f();
    return now_ms() - start;
  }
};

void mlp(bool hooks) {
  Tensor w1 = numbers({784, 512}, 1, 0.15).requires_grad_(),
         w2 = numbers({512, 512}, 2, 0.15).requires_grad_(),
         w3 = numbers({512, 10}, 3, 0.15).requires_grad_();
  Tensor b1 = zeros({512}, requires_grad()), b2 = zeros({512}, requires_grad()),
         b3 = zeros({10}, requires_grad());
  std::vector<Tensor> parameters{w1, b1, w2, b2, w3, b3};
  const Tensor x = numbers({64, 784}, 4, 2), y = labels({64}, 10);
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
  const Tensor loss = step();
  const Starts starts(f);
  const double eager = best_ms(step), compiled = best_ms(f);
  if (table) return line(hooks ? "MLP step, clip hooks" : "MLP step", eager, compiled, loss);
  std::printf(
      "MLP step, batch 64, %-18s eager %8.3f ms   compiled %8.3f ms   cold start %.1f ms, from "
      "disk %.1f ms  "
      " %s\n",
      hooks ? "clip hooks" : "no hooks", eager, compiled, starts.cold, starts.warm,
      f.stats().str().c_str());
}

void long_graph() {
  const Tensor x = rand({10000});
  auto run = [&](int ops) {
    return [&x, ops] {
      Tensor y = x;
      for (int i = 0; i < ops; i += 5) y = ((y * x + 0.5).tanh() - x).abs();
      return y;
    };
  };
  for (const int ops : {1000, 10000}) {
    auto f = compile(run(ops));
    const Starts starts(f);
    std::printf("%-38s cold start %.1f ms, from disk %.1f ms, then %.2f ms per call\n",
                str(ops, " pointwise ops on 10,000").c_str(), starts.cold, starts.warm, best_ms(f));
  }
}

}  // namespace

int main(int argc, char** argv) {
  // An empty cache of our own: a cold start is one.
  const std::string folder =
      std::filesystem::temp_directory_path() / str("grapnel-bench-", static_cast<long>(now_ms()));
  setenv("GRAPNEL_CACHE_DIR", folder.c_str(), 1);
  compiler::pass_options().background_kernels = false;
  for (; argc > 1 && std::string_view(argv[1]).starts_with("--"); --argc, ++argv) {
    if (std::string_view(argv[1]) == "--table") table = true;
    if (std::string_view(argv[1]) != "--cpu") continue;
    set_num_threads(1);
    processor_time = true;
  }
  auto wanted = [&](std::string_view name) {
    return argc < 2 || std::any_of(argv + 1, argv + argc, [&](const char* a) { return name == a; });
  };
  if (!table) std::printf("threads: %d\n", get_num_threads());
  if (wanted("recording")) recording();
  if (wanted("chain")) chain();
  if (wanted("bandwidth")) bandwidth();
  if (wanted("rows")) rows();
  if (wanted("gelu")) gelu_mlp();
  if (wanted("mlp")) mlp(false), mlp(true);
  if (wanted("long")) long_graph();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}
