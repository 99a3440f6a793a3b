/// What ranks that are threads draw.
#include "ranks.h"

using namespace grapnel;
using namespace grapnel::test;

namespace {
/// What every rank gets from `draw`, which all of them call at the same time, again and again.
template <class Draw>
std::vector<Tensor> drawn(int ranks, Draw draw) {
  std::vector<Tensor> out(static_cast<size_t>(ranks));
  dist::run_threads(ranks, [&](ProcessGroup group) {
    group.barrier().wait();
    std::vector<Tensor> all;
    for (int i = 0; i < 50; ++i) all.push_back(draw(group));
    out[static_cast<size_t>(group.rank())] = stack(all);
  });
  return out;
}
}  // namespace

TEST_CASE("every rank has a default generator of its own, which starts as the caller's is") {
  manual_seed(7);
  const auto draw = [](const ProcessGroup&) { return randn({3}); };
  const std::vector<Tensor> first = drawn(3, draw), again = drawn(3, draw);
  for (const Tensor& t : first) CHECK(equal(t, first[0]));
  for (const Tensor& t : again) CHECK(equal(t, first[0]));
  // The caller's own was left alone.
  CHECK(equal(stack(std::vector{randn({3}), randn({3})}), first[0].narrow(0, 0, 2)));
}

TEST_CASE("manual_seed inside a rank is for that rank, its callbacks and deep passes included") {
  manual_seed(7);
  const GeneratorState before = default_generator().state();
  const std::vector<Tensor> all = drawn(2, [](const ProcessGroup& group) {
    manual_seed(100 + static_cast<uint64_t>(group.rank()));
    const Tensor in_callback =
        group.barrier().future().then([](const auto&) { return rand({2}); }).wait();
    // Sixty passes inside one another go on in a thread of their own.
    Tensor deep;
    int depth = 0;
    std::function<void()> go = [&] {
      if (++depth > 65) {
        deep = rand({2});
        return;
      }
      const EnableGradGuard on;
      const Tensor x = ones({1}, requires_grad());
      x.register_hook([&](const Tensor&) { go(); });
      (x * 2.0).backward();
    };
    go();
    return cat(std::vector{in_callback, deep});
  });
  for (size_t r = 0; r < 2; ++r) {
    Generator own(100 + r);
    const Tensor expected = cat(std::vector{rand({2}, own), rand({2}, own)});
    CHECK(equal(all[r][0], expected));
  }
  CHECK(default_generator().state() == before);
}

TEST_CASE("dropout and initial values are alike in every run of a program with thread ranks") {
  const auto run = [] {
    manual_seed(3);
    return drawn(2, [](const ProcessGroup&) {
      nn::Linear layer(2, 2);
      return dropout(layer->weight.detach(), 0.5, true);
    });
  };
  const std::vector<Tensor> a = run(), b = run();
  for (size_t r = 0; r < 2; ++r) CHECK(equal(a[r], b[r]));
}
