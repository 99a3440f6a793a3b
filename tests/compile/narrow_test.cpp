/// Operands of one or two bytes, which kernels read as they are stored.
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

template <class Fn>
void check_bits(Fn fn) {
  const std::vector<Tensor> want = fn();
  for (const bool interpreted : {false, true}) {
    CAPTURE(interpreted);
    reset_compile_cache();
    // The first run of a kernel that is made in the background is interpreted.
    compiler::pass_options().background_kernels = interpreted;
    auto f = compile(fn);
    const std::vector<Tensor> got = f();
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(i);
      CHECK(same_bits(got[i], want[i]));
    }
  }
}

}  // namespace

TEST_CASE("masks, bytes and bf16 have eager's bits in every layout") {
  const WithPasses all([](compiler::PassOptions&) {});
  manual_seed(5);
  const Tensor x = randn({50, 130}), w = randn({130, 130});
  for (const DType type : {kBool, kUInt8, kBFloat16}) {
    CAPTURE(type);
    const Tensor m = (randn({50, 130}) * 3).clamp_min(0).to(type),
                 turned = (randn({130, 50}) * 3).clamp_min(0).to(type).t(),
                 row = (randn({130}) * 3).clamp_min(0).to(type),
                 column = (randn({50, 1}) * 3).clamp_min(0).to(type),
                 one = (randn({1}) + 5).to(type),
                 wide = (randn({50, 140}) * 3).clamp_min(0).to(type);
    for (const Tensor& n : {m, turned, row, column, one, wide.slice(1, 3, 133)}) {
      CAPTURE(n.shape());
      check_bits([&] { return std::vector<Tensor>{x * n.to(kFloat32) + 1}; });
      check_bits([&] {
        const Tensor y = (n.to(kFloat32) * 2 + n.to(kFloat32)).tanh();
        return std::vector<Tensor>{y, y.sum(), (n.to(kFloat32) + 1).amax(), y.sum(-1)};
      });
    }
    // Behind a product, in a sweep, as a result's own type, and in place.
    check_bits([&] {
      return std::vector<Tensor>{where(m > 0, x.matmul(w), 0.0), x.matmul(w) * m.to(kFloat32)};
    });
    check_bits([&] {
      const Tensor e = (x * m.to(kFloat32)).exp();
      return std::vector<Tensor>{e / e.sum(-1, true), (m.to(kFloat32) * 0.5).to(type)};
    });
    check_bits([&] {
      Tensor y = m.clone();
      if (y.is_floating_point()) y.mul_(3).add_(x);
      return std::vector<Tensor>{y, m.to(kFloat32).sum(), m.to(kFloat32).sum(0)};
    });
  }
}
