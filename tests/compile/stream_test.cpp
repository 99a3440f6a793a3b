/// Results that are too large for the caches are stored past them.
#include <thread>

#include "grapnel/codegen/jit.h"
#include "grapnel/codegen/llvm_module.h"
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

/// Everything counts as large.
const auto stream_all = [](compiler::PassOptions& o) {
  o.stream_bytes = 0;
  o.background_kernels = false;
};

template <class Fn>
void check_streams(const char* what, Fn fn) {
  CAPTURE(what);
  reset_compile_cache();
  auto f = compile(fn);
  const std::vector<Tensor> want = fn(), got = f();
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
}

}  // namespace

TEST_CASE(
    "results that are stored past the caches have the same bits, whatever their size, type and "
    "layout") {
  const WithPasses all(stream_all);
  for (const int64_t n : {1, 63, 64, 1000, 16384, 70001})
    for (const DType type : {kFloat32, kFloat64, kInt64, kFloat16}) {
      CAPTURE(n);
      CAPTURE(type);
      const Tensor a = (rand({n + 3}) * 9).to(type), b = (rand({n + 3}) * 9).to(type);
      check_streams("two results", [&] { return std::vector<Tensor>{a * b + 1, a - b}; });
      check_streams("operands that are not aligned", [&] {
        return std::vector<Tensor>{a.slice(0, 1, n + 1) * b.slice(0, 3, n + 3)};
      });
      check_streams("one element for all",
                    [&] { return std::vector<Tensor>{a * b.slice(0, 0, 1)}; });
      check_streams("a result that is also reduced", [&] {
        const Tensor y = a * b;
        return std::vector<Tensor>{y, y.sum()};
      });
      check_streams("in place, in a part", [&] {
        Tensor y = a.clone();
        y.mul_(b).add_(2);
        y.slice(0, 1, n).sub_(b.slice(0, 1, n));
        return std::vector<Tensor>{y};
      });
    }
  const Tensor rows = rand({300, 200}), bias = rand({200});
  check_streams("rows and columns", [&] {
    return std::vector<Tensor>{rows.t() * 2, rows + bias, softmax(rows * bias, -1)};
  });
}

TEST_CASE("only groups that are larger than the last cache stream") {
  if (!codegen::llvm_module().api) return;  // there are no kernels to count
  auto kernels_of = [&](int64_t limit) {
    const WithPasses all(stream_all);
    compiler::pass_options().stream_bytes = limit;
    reset_compile_cache();
    codegen::reset_jit_for_testing();
    const Tensor a = rand({1024}), b = rand({1024});
    auto f = compile([&] { return a.mul(b).tanh(); });
    f();
    const codegen::JitStats s = codegen::jit_stats();
    return s.compiled + s.disk_hits;
  };
  CHECK(kernels_of(3 * 4096) == 1);
  CHECK(kernels_of(3 * 4096 - 1) == 2);
}

TEST_CASE("kernels that run stay in memory however little room there is for others") {
  const WithPasses all(stream_all);
  codegen::set_jit_room_for_testing(1);
  const Tensor a = rand({70001}), b = rand({70001});
  auto large = compile([&] { return a * b + 1; });
  const Tensor want = a * b + 1;
  std::atomic<bool> stop = false;
  std::thread others([&] {
    Tensor x = rand({16});
    for (int i = 1; !stop; i = i % 12 + 1) {
      auto f = compile([&] {
        Tensor y = x;
        for (int k = 0; k < i; ++k) y = y * x + 0.5;
        return y;
      });
      f();
      f.reset();
    }
  });
  int wrong = 0;
  for (int i = 0; i < 200; ++i) wrong += !large().equal(want);
  stop = true;
  others.join();
  codegen::set_jit_room_for_testing(0);
  CHECK(wrong == 0);
}
