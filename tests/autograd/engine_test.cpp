/// Re-entrancy, threads, order, big graphs.
#include <sys/resource.h>

#include <thread>

#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE("eager.Z1: a hook may start a pass of its own") {
  auto p = leaf(2);
  auto t = p * p;
  HookHandle h;
  h = t.register_hook([&](const Tensor& g) {
    h.remove();
    EnableGradGuard grad;
    Tensor inner = g.detach().set_requires_grad(true);
    (inner * 2 + 5).backward();
    return inner.grad() + g;
  });
  t.backward();
  CHECK(value(p.grad()) == 12);
}

TEST_CASE("eager.Z2: the same from a leaf's hook, which may set grad() meanwhile") {
  auto p = leaf(2);
  p.register_hook([&](const Tensor& g) {
    EnableGradGuard grad;
    Tensor inner = g.detach().set_requires_grad(true);
    (inner * 3).backward();
    p.set_grad(constant(100.0));
    return inner.grad();
  });
  (p * p).backward();
  CHECK(value(p.grad()) == 103);
}

namespace {
struct Nested : autograd::Function<Nested> {
  static Tensor forward(autograd::AutogradContext* ctx, Tensor x, int64_t depth) {
    ctx->saved_data["depth"] = depth;
    return x * 1;
  }
  static variable_list backward(autograd::AutogradContext* ctx, variable_list g) {
    const int64_t depth = ctx->saved_data["depth"].toInt();
    if (depth > 0) {
      EnableGradGuard grad;
      Tensor x = leaf(1);
      Nested::apply(x, depth - 1).backward();
      return {g[0] + x.grad() - 1};
    }
    return {g[0]};
  }
};
}  // namespace

TEST_CASE("eager.Z3: passes nested 2,000 deep do not overflow the stack") {
  // The thread sanitizer keeps 4 MB for each stack: there a quarter has to do.
#ifdef __SANITIZE_THREAD__
  constexpr int kPasses = 500;
#else
  constexpr int kPasses = 2'000;
#endif
  auto x = leaf(1);
  Nested::apply(x, kPasses).backward();
  CHECK(value(x.grad()) == 1);
}

TEST_CASE("eager.Z4: errors of an inner pass surface in the hook") {
  auto x = leaf(1);
  auto y = x * 2;
  bool caught = false;
  y.register_hook([&](const Tensor&) {
    EnableGradGuard grad;
    Tensor inner = leaf(1);
    inner.register_hook([](const Tensor&) { throw 7; });
    try {
      (inner * 2).backward();
    } catch (int) {
      caught = true;
    }
  });
  y.backward();
  CHECK(caught);
  CHECK(value(x.grad()) == 2);
}

TEST_CASE(
    "eager.Z5: callbacks belong to the innermost pass, run once at its end in order, and may queue "
    "more") {
  CHECK_ERROR(autograd::queue_callback([] {}), "no backward pass is running");
  auto x = leaf(1);
  auto y = x * 2;
  std::string log;
  x.register_post_accumulate_grad_hook([&](const Tensor&) { log += "leaf "; });
  y.register_hook([&](const Tensor&) {
    autograd::queue_callback([&] {
      log += "outer1 ";
      autograd::queue_callback([&] { log += "outer3 "; });
    });
    autograd::queue_callback([&] { log += "outer2 "; });
    EnableGradGuard grad;
    Tensor inner = leaf(1);
    inner.register_hook([&](const Tensor&) { autograd::queue_callback([&] { log += "inner "; }); });
    (inner * 2).backward();
  });
  y.backward();
  CHECK(log == "inner leaf outer1 outer2 outer3 ");
}

namespace {
Tensor reentered;
struct ReentersItself : autograd::Function<ReentersItself> {
  static Tensor forward(autograd::AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(autograd::AutogradContext*, variable_list g) {
    reentered.backward({}, true);
    return g;
  }
};
}  // namespace

TEST_CASE("eager.Z6: running a node again inside its own formula is detected") {
  auto x = leaf(1);
  reentered = ReentersItself::apply(x);
  CHECK_ERROR(reentered.backward({}, true), "already running in an outer pass");
  reentered.reset();
}

TEST_CASE("eager.W1: hooks run on the calling thread") {
  const auto me = std::this_thread::get_id();
  auto x = leaf(1);
  bool here = false;
  x.register_hook([&](const Tensor&) { here = std::this_thread::get_id() == me; });
  (x * 2).backward();
  CHECK(here);
}

TEST_CASE("eager.W3: hooks may be added and removed from any thread while passes run") {
  auto x = leaf(1);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> fired{0};
  std::thread changer([&] {
    while (!stop) {
      HookHandle h = x.register_hook([&](const Tensor&) { ++fired; });
      h.remove();
    }
  });
  std::vector<std::thread> passes;
  for (int t = 0; t < 3; ++t)
    passes.emplace_back([&] {
      for (int i = 0; i < 200; ++i) (x * 2).backward();
    });
  for (std::thread& t : passes) t.join();
  stop = true;
  changer.join();
  CHECK(value(x.grad()) == 1200);
}

TEST_CASE("eager.W3: first passes over a leaf may run at once") {
  for (int round = 0; round < 200; ++round) {
    auto x = leaf(1);
    std::vector<std::thread> passes;
    for (int t = 0; t < 3; ++t) passes.emplace_back([&] { (x * 2).backward(); });
    for (std::thread& t : passes) t.join();
    CHECK(value(x.grad()) == 6);
  }
}

TEST_CASE(
    "eager.W4: leaves run at once, in the order of edges, and otherwise the node made last runs "
    "first") {
  auto x = leaf(1), y = leaf(1), z = leaf(1);
  std::string log;
  auto mark = [&](const char* what) { return [&log, what](const Tensor&) { log += what; }; };
  auto a = x * 2, b = y * 2;
  auto sum = (a + b) + z;
  x.register_hook(mark("x"));
  y.register_hook(mark("y"));
  z.register_hook(mark("z"));
  a.register_hook(mark("a"));
  b.register_hook(mark("b"));
  sum.backward();
  CHECK(log == "zbyax");
  log.clear();
  (x + y).backward();
  CHECK(log == "xy");
}

TEST_CASE("a chain of a million nodes is built, run and destroyed on a small stack") {
  // The thread sanitizer keeps 18 KB for each node and frees none of it: there a tenth has to do.
#ifdef __SANITIZE_THREAD__
  constexpr int kNodes = 100'000;
#else
  constexpr int kNodes = 1'000'000;
#endif
  auto x = leaf(1);
  auto y = x * 1;
  for (int i = 0; i < kNodes; ++i) y = y + 1;
  y.backward();
  CHECK(value(x.grad()) == 1);
  auto z = leaf(1) * 1;
  for (int i = 0; i < kNodes; ++i) z = z.view({1});
  z = Tensor();
}

TEST_CASE("passes on several threads over one graph add up") {
  auto x = leaf(1);
  auto y = x * 3;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { y.backward({}, true); });
  for (std::thread& t : threads) t.join();
  CHECK(value(x.grad()) == 12);
}

TEST_CASE("backward through a freed graph says what to do") {
  auto x = leaf(2);
  auto y = x * x;
  y.backward();
  CHECK_ERROR(y.backward(), "Pass retain_graph = true");
  CHECK_ERROR(constant(1.0).backward(), "does not require grad");
  CHECK_ERROR((leaf({1, 2}) * 2).backward(), "can be made up only for one element");
  CHECK_ERROR((leaf({1, 2}) * 2).backward(ones({3}, kFloat64)), "has shape [3], expected [2]");
}

TEST_CASE("changing a saved value is noticed and the message names op and place") {
  auto x = leaf(2);
  auto y = x * 1;
  auto z = y * y;
  y.add_(1);
  const std::string message = error_of([&] { z.backward(); });
  CHECK(contains(message, "gradient of mul"));
  CHECK(contains(message, "engine_test.cpp:"));
}

TEST_CASE("checkpointed functions give the same gradients and fire hooks once") {
  auto w = leaf({0.5, -1.5});
  int fired = 0;
  w.register_hook([&](const Tensor&) { ++fired; });
  auto f = [&](const Tensor& x) { return (sin(x * w) * exp(x)).sum(); };
  auto x1 = leaf({1, 2}), x2 = leaf({1, 2});
  f(x1).backward();
  const Values plain = values(w.grad());
  w.reset_grad();
  autograd::checkpoint(f, x2).backward();
  CHECK(values(w.grad()) == plain);
  CHECK(values(x1.grad()) == values(x2.grad()));
  CHECK(fired == 2);
}

TEST_CASE(
    "a checkpoint does not keep its input's later history, and notices an input that was changed") {
  const auto square = [](const Tensor& t) { return t * t; };
  auto x = leaf({1, 2});
  std::weak_ptr<int> hook_of_graph;
  {
    auto y = x * 3;
    auto z = autograd::checkpoint(square, y);
    auto alive = std::make_shared<int>(0);
    hook_of_graph = alive;
    z.register_hook([alive](const Tensor&) {});
    y.add_(z);  // from now on y's history leads through the checkpoint
  }
  CHECK(hook_of_graph.expired());

  auto y = x * 3;
  auto z = autograd::checkpoint(square, y).sum();
  y.add_(1);
  CHECK_ERROR(z.backward(), "an input of shape [2] was changed by an in-place operation");
}

TEST_CASE("third derivatives work through saved outputs and in-place changes of views") {
  auto x = leaf({0.3, 0.7});
  auto f = [](const Tensor& t) {
    auto b = t.clone();
    auto v = b.select(0, 1);
    v.mul_(t.select(0, 0));
    v.tanh_();
    return (b * b).sum();
  };
  auto numeric = [&](int i) {
    const double eps = 1e-5;
    auto at = [&](double d) {
      auto p = leaf({0.3, 0.7});
      {
        NoGradGuard off;
        p.select(0, i).add_(d);
      }
      return values(autograd::grad({f(p)}, {p})[0]);
    };
    return (at(eps)[1] - at(-eps)[1]) / (2 * eps);
  };
  Tensor g = autograd::grad({f(x)}, {x}, {}, {}, true)[0];
  Tensor h = autograd::grad({g.select(0, 1)}, {x})[0];
  CHECK(values(h)[0] == doctest::Approx(numeric(0)).epsilon(1e-6));
  CHECK(values(h)[1] == doctest::Approx(numeric(1)).epsilon(1e-6));
}
