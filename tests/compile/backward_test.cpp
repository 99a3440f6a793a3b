/// Backward passes that are recorded and run as one graph.
#include "tests/compile/backends.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

TEST_CASE("a compiled backward gives the gradients of an eager one, in one graph") {
  on_each_backend([](const CompileOptions& options) {
    auto grads = [&](bool compiled) {
      manual_seed(2);
      Tensor w1 = randn({6, 8}).requires_grad_(), w2 = randn({8, 2}).requires_grad_(), x = randn({5, 6});
      Tensor loss = x.matmul(w1).tanh().matmul(w2).square().mean();
      w1.register_hook([](const Tensor& g) { return g.clamp(-0.1, 0.1); });
      if (compiled) {
        CompiledBackward scope(options);
        loss.backward();
        CHECK(scope.stats().graphs == 1);
        CHECK(scope.stats().breaks == 0);
      } else {
        loss.backward();
      }
      return std::vector<Tensor>{w1.grad(), w2.grad()};
    };
    const auto want = grads(false), got = grads(true);
    CHECK(same_bits(want[0], got[0]));
    CHECK(same_bits(want[1], got[1]));
  });
}
