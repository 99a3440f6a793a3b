/// Does it pay to take softmax and layer norm apart, so that compiled graphs fuse their steps with
/// what stands around them? See docs/notes/045-calls-stay-whole-on-the-cpu.md.
///
///   bench_lowered
///
/// Each row is one compiled function with the op, and the same with what the op means (Op::lower) in
/// its place. Both give the same bits, which is checked first. They take turns on one thread;
/// printed are medians of the processor time, and of the ratio.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "grapnel/grapnel.h"
#include "grapnel/ops/op_table.h"

using namespace grapnel;

namespace {

constexpr int kRuns = 41;

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

bool apart = false;

template <class D, class... T>
Outputs run(const typename D::Attrs& attrs, const T&... tensors) {
  const Tensor* const list[] = {&tensors...};
  const Inputs inputs(list);
  return apart ? op_of<D>.lower(inputs, &attrs) : apply_all(op_of<D>, inputs, &attrs);
}

template <class F>
void row(const char* what, F f) {
  auto whole = compile(f), lowered = compile(f);
  const auto call = [](auto& fn, bool as_steps) {
    apart = as_steps;
    return fn();
  };
  const variable_list expected = call(f, false), a = call(whole, false), b = call(lowered, true);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!expected[i].equal(a[i]) || !expected[i].equal(b[i])) {
      std::fprintf(stderr, "wrong result: %s\n", what);
      std::exit(1);
    }
  // Kernels are made in the background, on a core that the timings need.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::vector<double> first, second, ratios;
  for (int i = 0; i < kRuns; ++i) {
    const double start = now_ms();
    call(whole, false);
    const double between = now_ms();
    call(lowered, true);
    const double end = now_ms();
    first.push_back(between - start);
    second.push_back(end - between);
    ratios.push_back((end - between) / (between - start));
  }
  std::printf("  %-30s whole %8.3f ms   apart %8.3f ms   ratio %.2f\n", what, median(first),
              median(second), median(ratios));
  std::fflush(stdout);
}

void rows_of(int64_t m, int64_t n) {
  std::printf("%lld x %lld\n", static_cast<long long>(m), static_cast<long long>(n));
  const Tensor x = randn({m, n}), g = randn({m, n}), r = randn({m, n}), w = randn({n}),
               b = randn({n});
  const SoftmaxAttrs along{.dim = 1};
  const NormAttrs norm{.dims = 1, .eps = 1e-5};
  const Tensor y = x.softmax(1), logs = x.log_softmax(1);
  const Outputs normed = apply_all<LayerNorm>(norm, x, w, b);
  const Tensor mean = normed[1], rstd = normed[2];
  row("softmax", [&] { return variable_list{run<Softmax>(along, x)[0]}; });
  row("softmax(x * c + b)", [&] { return variable_list{run<Softmax>(along, x * 0.125 + b)[0]}; });
  row("softmax(x * c + b) * m",
      [&] { return variable_list{run<Softmax>(along, x * 0.125 + b)[0] * r}; });
  row("softmax_backward(g * m) * c",
      [&] { return variable_list{run<SoftmaxBackward>(along, g * r, y)[0] * 0.125}; });
  row("log_softmax(x + b)", [&] { return variable_list{run<LogSoftmax>(along, x + b)[0]}; });
  row("log_softmax_backward(g * m)",
      [&] { return variable_list{run<LogSoftmaxBackward>(along, g * r, logs)[0]}; });
  row("layer_norm(x + r)", [&] {
    const Outputs out = run<LayerNorm>(norm, x + r, w, b);
    return variable_list(out.begin(), out.end());
  });
  row("gelu(layer_norm(x + r))", [&] {
    const Outputs out = run<LayerNorm>(norm, x + r, w, b);
    return variable_list{gelu(out[0]), out[1], out[2]};
  });
  row("layer_norm_backward(g + r)", [&] {
    const Outputs out = run<LayerNormBackward>(norm, g + r, x, mean, rstd, w);
    return variable_list{out[0], out[1].sum({0})};
  });
}

}  // namespace

int main() {
  set_num_threads(1);
  const NoGradGuard no_grad;
  rows_of(4096, 512);
  rows_of(512, 768);
  rows_of(1024, 2048);
  rows_of(8192, 64);
  rows_of(64, 10);
}
