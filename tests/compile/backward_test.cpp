/// Backward passes that are recorded and run as one graph.
#include "tests/compile/backends.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

TEST_CASE("a compiled backward gives the gradients of an eager one, in one graph") {
  on_each_backend([](const CompileOptions& options) {
    auto grads = [&](bool compiled) {
      manual_seed(2);
      Tensor w1 = randn({6, 8}).requires_grad_(), w2 = randn({8, 2}).requires_grad_(),
             x = randn({5, 6});
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

TEST_CASE("a hook that reads the last gradient of a pass leaves grad() in place") {
  on_each_backend([](const CompileOptions& options) {
    Tensor x = tensor({2.0}, requires_grad());
    double seen = 0;
    x.register_hook([&](const Tensor& g) { seen = g.item<double>(); });
    Tensor y = x * 3;
    CompiledBackward scope(options);
    y.backward();
    CHECK(seen == 3);
    REQUIRE(x.grad().defined());
    CHECK(x.grad().item<double>() == 3);
  });
}

TEST_CASE("StrongBackward holds in a compiled pass, also when the hook throws after a break") {
  on_each_backend([](const CompileOptions& options) {
    for (const bool reads : {false, true}) {
      Tensor a = tensor({1.0}, requires_grad()), b = tensor({2.0}, requires_grad());
      a.set_grad(tensor({10.0}));
      const Tensor before = a.grad();
      Tensor product = b * 2;
      Tensor out = product + a;
      product.register_hook([&](const Tensor& g) {
        if (reads) CHECK(g.item<double>() == 1);
        throw std::runtime_error("stop");
      });
      CompiledBackward scope(options);
      const autograd::StrongBackward strong;
      CHECK_THROWS_WITH_AS(out.backward(), "stop", std::runtime_error);
      CHECK(a.grad().is_same(before));
      CHECK(a.grad().item<double>() == 10);
      CHECK(!b.grad().defined());
    }
  });
}

TEST_CASE(
    "callbacks at the end of a pass run after opaque hooks, also when the pass is part of a longer "
    "recording") {
  on_each_backend([](const CompileOptions& options) {
    Tensor x = ones({2}, requires_grad());
    std::vector<int> order;
    x.register_hook(opaque([&](const Tensor&) { order.push_back(1); }));
    x.register_post_accumulate_grad_hook(
        [&](Tensor) { autograd::queue_callback([&] { order.push_back(2); }); });
    Tensor y = x * 2;
    y.register_hook([&](const Tensor&) { order.push_back(0); });
    compile([&] { y.sum().backward({}, true); }, options)();
    CHECK(order == std::vector<int>{0, 1, 2});
    // A hook that is called after the opaque one brings that one about, too; here the callback is
    // all that follows.
    order.clear();
    Tensor z = ones({2}, requires_grad());
    z.register_hook([&](const Tensor&) { autograd::queue_callback([&] { order.push_back(2); }); });
    z.register_hook(opaque([&](const Tensor&) { order.push_back(1); }));
    compile([&] { (z * 2).sum().backward(); }, options)();
    CHECK(order == std::vector<int>{1, 2});
  });
}

TEST_CASE(
    "an opaque post-accumulate hook gets the leaf itself, also after the leaf was written in the "
    "same recording") {
  on_each_backend([](const CompileOptions& options) {
    Tensor x = tensor({4.0}, requires_grad());
    std::vector<double> seen;
    x.register_post_accumulate_grad_hook(opaque([&](const Tensor& leaf) {
      seen.push_back(leaf.item<double>());
      seen.push_back(leaf.grad().item<double>());
    }));
    compile(
        [&] {
          for (int i = 0; i < 2; ++i) {
            x.reset_grad();
            (x * x).sum().backward();
            NoGradGuard no_grad;
            x.sub_(x.grad() * 0.25);
          }
        },
        options)();
    CHECK(seen == std::vector<double>{4, 8, 2, 4});
    CHECK(x.item<double>() == 1);
  });
}

TEST_CASE("an opaque hook on a leaf finds the gradient of its turn, whatever becomes of it later") {
  on_each_backend([](const CompileOptions& options) {
    Tensor w = ones({3}, requires_grad());
    std::vector<double> seen;
    w.register_post_accumulate_grad_hook(
        opaque([&](const Tensor& leaf) { seen.push_back(leaf.grad().sum().item<double>()); }));
    auto step = compile(
        [&] {
          (w * 2.0).sum().backward();
          (w * 3.0).sum().backward();  // adds to the same tensor
          w.reset_grad();
          w.sum().backward();
          w.set_grad(zeros({3}));
        },
        options);
    step();
    step();
    CHECK(seen == std::vector<double>{6, 15, 3, 6, 15, 3});
  });
}

TEST_CASE("a gradient that an opaque hook keeps is not changed afterwards") {
  on_each_backend([](const CompileOptions& options) {
    for (const bool compiled : {false, true}) {
      CAPTURE(compiled);
      Tensor x = ones({3}, requires_grad()), w = ones({3}, requires_grad());
      std::vector<Tensor> kept;
      x.register_hook(opaque([&](const Tensor& g) { kept.push_back(g); }));
      Tensor y = w * 1, u = sin(y),
             z = x + y;  // z hands one buffer to x and to y, where more is added later
      Tensor loss = z.sum() + u.sum();
      std::optional<CompiledBackward> scope;
      if (compiled) scope.emplace(options);
      loss.backward();
      x.grad().add_(5);
      CHECK(kept.at(0).equal(ones({3})));
    }
  });
}

TEST_CASE("results that somebody waits for get their memory before threads share the work") {
  const int before = get_num_threads();
  set_num_threads(4);
  const Tensor x = rand({1 << 18}), want = x.clamp(0.25, 0.75);
  on_each_backend([&](const CompileOptions& options) {
    auto f = compile([&] { return x.clamp(0.25, 0.75); }, options);
    int64_t wrong = 0;
    for (int i = 0; i < 200; ++i) wrong += !f().equal(want);
    CHECK(wrong == 0);
  });
  set_num_threads(before);
}
