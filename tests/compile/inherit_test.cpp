/// Results that lie where an operand lay: see Note [Inheriting memory] in compile/plan.h.
#include "grapnel/base/allocator.h"
#include "grapnel/hooks/gradient.h"
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

/// How many results take over the memory of an operand.
template <class Fn>
size_t heirs_of(Fn fn) {
  return planned(fn).plan.heirs.size();
}

template <class Fn>
void check_bits(Fn fn) {
  reset_compile_cache();
  compiler::pass_options().background_kernels = false;
  const std::vector<Tensor> want = fn();
  auto f = compile(fn);
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> got = f();
    REQUIRE(got.size() == want.size());
    for (size_t k = 0; k < want.size(); ++k) CHECK(same_bits(got[k], want[k]));
  }
}

}  // namespace

TEST_CASE("a gradient that is scaled by its norm stays where it is") {
  manual_seed(8);
  const Tensor x = randn({20, 300});
  const auto step = [&] {
    const NoGradGuard no_grad;
    const Tensor g = x.t().matmul(x);
    const Tensor clipped = hooks::ClipNorm{1.0}(g);
    return std::vector<Tensor>{clipped, clipped * 2};
  };
  CHECK(heirs_of(step) >= 1);
  check_bits(step);
  auto f = compile(step);
  f();
  reset_peak_memory();
  const size_t before = memory_stats().in_use;
  const auto kept = f();
  CHECK(memory_stats().peak - before < 300 * 300 * 4 * 5 / 2);
}

TEST_CASE("nothing is inherited from what is still needed, or lies in another order") {
  manual_seed(9);
  const Tensor x = randn({64, 64});
  const auto product = [&] { return x.matmul(x); };
  const auto behind = [](const Tensor& m, const Tensor& y) { return y / (m.sum() + 2); };
  // The product is read again, kept, read the other way round, or of another type.
  const auto again = [&] {
    const Tensor m = product(), y = behind(m, m * 2);
    return std::vector<Tensor>{y.matmul(y) + m};
  };
  const auto kept = [&] {
    const Tensor m = product();
    return std::vector<Tensor>{behind(m, m * 2), m};
  };
  const auto turned = [&] {
    const Tensor m = product();
    return std::vector<Tensor>{behind(m, m.t() * 2 + m)};
  };
  const auto narrow = [&] {
    const Tensor m = product();
    return std::vector<Tensor>{behind(m, m * 2).to(kBFloat16)};
  };
  const auto broadcast = [&] {
    const Tensor m = product();
    return std::vector<Tensor>{m.sum({1}, true) * 2 + x, m.unsqueeze(0) * x.unsqueeze(1)};
  };
  CHECK(heirs_of(kept) == 0);
  CHECK(heirs_of(turned) == 0);
  check_bits(again);
  check_bits(kept);
  check_bits(turned);
  check_bits(narrow);
  check_bits(broadcast);
}

TEST_CASE("memory is inherited along chains and inside sweeps") {
  manual_seed(10);
  const Tensor x = randn({90, 90}), rows = randn({700, 64});
  check_bits([&] {
    Tensor m = x.matmul(x);
    for (int i = 0; i < 4; ++i) m = (m - 1) / (m.abs().sum() + 1);
    return std::vector<Tensor>{m};
  });
  check_bits([&] {
    Tensor y = rows.matmul(rows.slice(0, 0, 64));
    for (int i = 0; i < 3; ++i) {
      y = softmax(y * 3 - y.t().amax({0}).unsqueeze(1), -1);
      y = y / y.norm();
    }
    return std::vector<Tensor>{y};
  });
}
