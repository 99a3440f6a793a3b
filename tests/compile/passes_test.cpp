/// What each pass does, that it can be switched off, and what it must leave alone.
#include "tests/compile/plans.h"

using namespace grapnel;
using compiler::PassOptions;

namespace {

/// A function with its own inputs, so that nothing is shared between runs.
template <class Fn>
std::string plan_of(Fn fn, IntArrayRef sizes = {4, 6}) {
  const Tensor x = rand(sizes), y = rand(sizes);
  return planned([&] { return fn(x, y); }).str();
}

}  // namespace

TEST_CASE("dead code is dropped, but not draws and not writes to tensors from outside") {
  Tensor outside = zeros({4, 6});
  auto fn = [&](const Tensor& x, const Tensor& y) {
    const Tensor dead = (x + y).matmul(y.t());
    rand({3});
    outside.add_(x);
    return x * y;
  };
  CHECK(plan_of(fn) == "uniform [add mul]");
  const WithPasses off([](PassOptions& o) { o.dead_code = false; });
  CHECK(plan_of(fn).find("matmul") != std::string::npos);
}

TEST_CASE("what was computed already is not computed again, unless an operand changed in between") {
  auto twice = [](const Tensor& x, const Tensor& y) {
    return (x + y).exp().matmul((x + y).exp().t());
  };
  CHECK(plan_of(twice) == "[add exp] matmul");
  auto changed = [](const Tensor& x, const Tensor& y) {
    Tensor z = x.clone();
    const Tensor before = (z + y).exp();
    z.mul_(y);
    return before.matmul((z + y).exp().t());
  };
  CHECK(planned([&] { return changed(rand({4, 6}), rand({4, 6})); }).simplified.same.empty());
  const WithPasses off([](PassOptions& o) { o.common_subexpressions = false; });
  CHECK(plan_of(twice) != "[add exp] matmul");
}

TEST_CASE("a copy that nobody changes is not made") {
  auto copied = [](const Tensor& x, const Tensor& y) {
    return x.clone().matmul(y.contiguous().t().clone());
  };
  CHECK(plan_of(copied) == "clone matmul");  // what is turned round has another layout
  auto written = [](const Tensor& x, const Tensor& y) {
    Tensor z = x.clone();
    z.relu_();
    return z.matmul(y.t());
  };
  CHECK(plan_of(written) == "[clone relu]> matmul");
  Tensor outside = rand({4, 6});
  auto source_written = [&](const Tensor&, const Tensor& y) {
    const Tensor before = outside.clone();
    outside.mul_(2.0);
    return before.matmul(y.t());
  };
  CHECK(plan_of(source_written).find("clone") != std::string::npos);
  const WithPasses off([](PassOptions& o) { o.copies = false; });
  CHECK(plan_of(copied) == "clone clone matmul");
}

TEST_CASE("code that is not recorded may change a tensor from outside: copies of it are made") {
  Tensor outside = ones({3});
  const auto f = compile([&](Tensor y) {
    const Tensor before = outside.clone();
    invoke([&](const Tensor& t) { return outside.fill_(5.0), t; }, y);
    return before.matmul(y);
  });
  auto g = f;
  CHECK(g(ones({3})).item<float>() == 3);
}

TEST_CASE("steps that undo or repeat each other are dropped where that changes no bit") {
  auto chain = [](const Tensor& x, const Tensor& y) {
    return x.neg().neg().relu().relu().abs().abs().matmul(y.t());
  };
  CHECK(plan_of(chain) == "[relu abs]> matmul");
  auto used = [](const Tensor& x, const Tensor& y) {
    const Tensor minus = x.neg();
    return std::vector<Tensor>{minus, minus.neg().matmul(y.t())};
  };
  CHECK(plan_of(used) == "neg matmul");
  const WithPasses off([](PassOptions& o) { o.algebra = false; });
  CHECK(plan_of(chain) == "[neg neg relu relu abs abs]> matmul");
}

TEST_CASE("no pass changes a bit, alone or with the others") {
  manual_seed(3);
  const Tensor x = randn({16, 40}), w = randn({40});
  auto run = [&] {
    const Tensor a = (x.clone().neg().neg() + w).tanh(), b = (x + w).tanh();
    const Tensor c = (a - b.mean({-1}, true)).to(kFloat32) * w;
    return (c / c.square().sum({-1}, true).sqrt()).matmul(w.relu().relu());
  };
  const Tensor want = run();
  for (int mask = 0; mask < 256; ++mask) {
    CAPTURE(mask);
    const WithPasses restored([](PassOptions&) {});
    PassOptions& o = compiler::pass_options();
    o.dead_code = mask & 1;
    o.common_subexpressions = mask & 2;
    o.copies = mask & 4;
    o.algebra = mask & 8;
    o.fusion = mask & 16;
    o.sweeps = mask & 32;
    o.epilogues = o.prologues = mask & 64;
    o.looks = mask & 128;
    reset_compile_cache();
    auto f = compile(run);
    CHECK(f().equal(want));
  }
}
