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

TEST_CASE("compiled.37 scalars 0 and 1 are not special, and clearing grad keeps the key") {
  CompileOptions o;
  o.fullgraph = true;
  on_each_backend([](const CompileOptions& options) {
    Tensor x = ones({10}, requires_grad());
    x.register_post_accumulate_grad_hook([](Tensor t) { t.mutable_grad().mul_(2.0); });
    CompiledBackward scope(options);
    for (int i = 0; i < 5; ++i) {
      x.reset_grad();
      (x * i).sum().backward();
      CHECK(x.grad()[3].item<float>() == 2.0f * static_cast<float>(i));
    }
    CHECK(scope.stats().graphs == 1);
  }, o);
}

TEST_CASE("compiled.66 four nested gradients with create_graph") {
  on_each_backend([](const CompileOptions& options) {
    for (int round = 0; round < 2; ++round) {
      Tensor x = tensor({2.0}, requires_grad());
      Tensor y = x.pow(3).sum();
      CompiledBackward scope(options);
      std::vector<double> values;
      for (int order = 0; order < 4; ++order) {
        y = autograd::grad({y}, {x}, {}, true, true, true)[0].sum();
        values.push_back(y.item<double>());
      }
      CHECK(values == std::vector<double>{12, 12, 6, 0});
      if (round == 0) CHECK(scope.stats().graphs <= 4);
      else CHECK(scope.stats().graphs == 0);
    }
  });
}

TEST_CASE("compiled.X9 a throwing hook leaves no grad changed and the graph usable") {
  on_each_backend([](const CompileOptions& options) {
    Tensor a = tensor({1.0, 2.0}, requires_grad()), b = tensor({3.0, 4.0}, requires_grad());
    Tensor loss = (a * b).sum() + b.sum();
    bool armed = true;
    a.register_hook([&](const Tensor&) {
      if (armed) throw std::runtime_error("hook");
    });
    CompiledBackward scope(options);
    CHECK_THROWS_WITH(loss.backward(), "hook");
    CHECK(!a.grad().defined());
    CHECK(!b.grad().defined());
    armed = false;
    loss.backward();
    CHECK(b.grad()[1].item<float>() == 3.0f);
    CHECK(a.grad()[0].item<float>() == 3.0f);
  });
}

TEST_CASE("compiled.86 an outer scope may not end before an inner one") {
  auto outer = std::make_unique<CompiledBackward>();
  auto inner = std::make_unique<CompiledBackward>();
  auto end = [](std::unique_ptr<CompiledBackward>& scope) {
    CompiledBackward* raw = scope.release();
    raw->~CompiledBackward();
    ::operator delete(raw);
  };
  CompiledBackward* raw = outer.get();
  CHECK_THROWS_WITH_AS(raw->~CompiledBackward(), doctest::Contains("outer scope ended before"), Error);
  end(inner);
  ::operator delete(outer.release());
  engine::set_pass_runner(nullptr);
}
