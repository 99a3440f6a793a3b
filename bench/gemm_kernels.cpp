/// How fast are the matrix product and the convolution, on one thread and on two?
///
/// One table: time and GFLOP/s per shape and number of threads, best of several runs. The marks
/// tell how a and b lie in memory (n as written, t transposed); x W^T of a linear layer is nt, its
/// gradients are nn and tn. Every result is compared with a plain sum before it is timed. With an
/// argument, only rows whose name contains it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/conv.h"
#include "grapnel/cpu/kernels/gemm.h"

namespace {

using namespace grapnel::kernels;

std::string filter;

template <class F>
double best_seconds(F f) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9, spent = 0;
  int calls = 1;
  for (int round = 0; round < 200 && (round < 8 || spent < 0.4); ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) f();
    const double time = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, time / calls);
    spent += time;
    if (time < 1e-3) calls *= 2;
  }
  return best;
}

template <class F>
void row(const std::string& name, double flop, F f) {
  std::printf("%-44s", name.c_str());
  for (int threads : {1, 2}) {
    grapnel::set_num_threads(threads);
    f();
    const double seconds = best_seconds(f);
    std::printf(" | %11.2f us %7.1f", seconds * 1e6, flop / seconds * 1e-9);
  }
  std::printf("\n");
  std::fflush(stdout);
}

template <class T>
std::vector<T> values(int64_t count) {
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(static_cast<double>(i * 2654435761u % 1000) / 1000 - 0.5);
  return x;
}

void require(bool right, const std::string& name) {
  if (right) return;
  std::printf("%s: wrong result\n", name.c_str());
  std::exit(1);
}

struct Shape {
  int64_t m, n, k;
  const char* marks = "nn";
  int64_t batch = 1;
};

template <class T>
void bench_gemm(const Shape& s) {
  const bool ta = s.marks[0] == 't', tb = s.marks[1] == 't';
  const char* type = sizeof(T) == 4 ? "f32" : "f64";
  const std::string name = std::string("gemm ") + type + " " + std::to_string(s.m) + " x " +
                           std::to_string(s.n) + " x " + std::to_string(s.k) + " " + s.marks +
                           (s.batch > 1 ? " batch " + std::to_string(s.batch) : "");
  if (name.find(filter) == std::string::npos) return;
  const auto a = values<T>(s.batch * s.m * s.k), b = values<T>(s.batch * s.k * s.n);
  std::vector<T> c(static_cast<size_t>(s.batch * s.m * s.n));
  GemmArgs g{.type = sizeof(T) == 4 ? GemmType::f32 : GemmType::f64, .m = s.m, .n = s.n, .k = s.k};
  g.a = a.data(), g.a_row = ta ? 1 : s.k, g.a_col = ta ? s.m : 1, g.a_batch = s.m * s.k;
  g.b = b.data(), g.b_row = tb ? 1 : s.n, g.b_col = tb ? s.k : 1, g.b_batch = s.k * s.n;
  g.c = c.data(), g.c_row = s.n, g.c_batch = s.m * s.n, g.batch = s.batch;
  gemm(g);
  for (int64_t at : {int64_t{0}, s.m * s.n / 2, s.m * s.n - 1}) {
    double sum = 0;
    for (int64_t p = 0; p < s.k; ++p) {
      sum += static_cast<double>(a[static_cast<size_t>(at / s.n * g.a_row + p * g.a_col)]) *
             static_cast<double>(b[static_cast<size_t>(p * g.b_row + at % s.n * g.b_col)]);
    }
    require(std::abs(sum - static_cast<double>(c[static_cast<size_t>(at)])) <
                1e-5 * static_cast<double>(s.k),
            name);
  }
  row(name, 2.0 * static_cast<double>(s.batch * s.m * s.n * s.k), [&] { gemm(g); });
}

template <class T>
void bench_conv(ConvParams p) {
  p.type = sizeof(T) == 4 ? ConvType::f32 : ConvType::f64;
  const std::string name =
      std::string("conv ") + (sizeof(T) == 4 ? "f32 " : "f64 ") + std::to_string(p.n) + "x" +
      std::to_string(p.c) + "x" + std::to_string(p.h) + "x" + std::to_string(p.w) + " -> " +
      std::to_string(p.o) + ", " + std::to_string(p.kh) + "x" + std::to_string(p.kw);
  if (name.find(filter) == std::string::npos) return;
  const auto src = values<T>(p.n * p.c * p.h * p.w),
             weights = values<T>(p.o * (p.c / p.groups) * p.kh * p.kw);
  auto dst = values<T>(p.n * p.o * p.out_h() * p.out_w());
  std::vector<T> grad_src(src.size()), grad_weights(weights.size()), out(dst.size());
  const double flop =
      2.0 * static_cast<double>(dst.size()) * static_cast<double>(p.c / p.groups * p.kh * p.kw);

  // <dst, conv(src)> is also <grad_src, src> and <grad_weights, weights>.
  conv2d(p, src.data(), weights.data(), out.data());
  conv2d_backward_data(p, dst.data(), weights.data(), grad_src.data());
  conv2d_backward_weights(p, src.data(), dst.data(), grad_weights.data());
  const auto dot = [](const std::vector<T>& x, const std::vector<T>& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    return sum;
  };
  const double expected = dot(dst, out), tolerance = 1e-3 * std::sqrt(flop);
  require(std::abs(dot(grad_src, src) - expected) < tolerance &&
              std::abs(dot(grad_weights, weights) - expected) < tolerance,
          name);

  row(name + " forward", flop, [&] { conv2d(p, src.data(), weights.data(), out.data()); });
  row(name + " grad data", flop,
      [&] { conv2d_backward_data(p, dst.data(), weights.data(), grad_src.data()); });
  row(name + " grad weights", flop,
      [&] { conv2d_backward_weights(p, src.data(), dst.data(), grad_weights.data()); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) filter = argv[1];
  std::printf("%-44s | %14s %7s | %14s %7s\n", "", "1 thread", "GFLOP/s", "2 threads", "GFLOP/s");
  for (int64_t size : {4, 16, 64, 128, 256, 512, 1024, 2048}) bench_gemm<float>({size, size, size});
  for (const Shape& s : {Shape{64, 512, 784, "nt"},
                         {64, 784, 512, "nn"},
                         {512, 784, 64, "tn"},
                         {64, 512, 784, "nn"},
                         {64, 512, 512, "nt"},
                         {64, 512, 512, "nn"},
                         {512, 512, 64, "tn"},
                         {64, 10, 512, "nt"},
                         {64, 512, 10, "nn"},
                         {10, 512, 64, "tn"},
                         {512, 512, 512, "nt"},
                         {512, 512, 512, "tn"},
                         {1, 512, 512, "nt"},
                         {512, 1, 512, "nn"},
                         {128, 128, 64, "nt", 96},
                         {128, 64, 128, "nn", 96}}) {
    bench_gemm<float>(s);
  }
  for (int64_t size : {4, 16, 64, 128, 256, 512, 1024}) bench_gemm<double>({size, size, size});
  for (const Shape& s : {Shape{64, 512, 784, "nt"},
                         {64, 784, 512, "nn"},
                         {512, 784, 64, "tn"},
                         {1, 512, 512, "nt"}}) {
    bench_gemm<double>(s);
  }
  const ConvParams small{
      .n = 64, .c = 16, .h = 28, .w = 28, .o = 32, .kh = 3, .kw = 3, .pad = {1, 1}};
  bench_conv<float>(small);
  bench_conv<float>({.n = 64, .c = 3, .h = 32, .w = 32, .o = 32, .kh = 3, .kw = 3, .pad = {1, 1}});
  bench_conv<float>(
      {.n = 1, .c = 128, .h = 28, .w = 28, .o = 128, .kh = 3, .kw = 3, .pad = {1, 1}});
  bench_conv<double>(small);
}
