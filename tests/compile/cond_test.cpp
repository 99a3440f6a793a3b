/// Branches that data decides.
#include "tests/compile/backends.h"
#include "tests/compile/modes.h"

using namespace grapnel;

TEST_CASE("compiled.32 hooks survive a branch in the graph") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({3}, requires_grad());
    Tensor loss = mode.call([&] {
      Tensor y = x * 2.0;
      y.register_hook([](const Tensor& g) { return g * 2.0; });
      return cond(
                 x.sum() > 0, [](const Tensor& t) { return t + 1.0; },
                 [](const Tensor& t) { return t - 1.0; }, y)
          .sum();
    });
    CHECK(loss.item<float>() == 9.0f);
    mode.backward([&] { loss.backward(); });
    CHECK(values_of(x.grad()) == std::vector<double>{4, 4, 4});
  });
}

TEST_CASE("only the branch that holds contributes to gradients, of first and second order") {
  in_all_modes({.F = 1, .B = 4}, [](Mode& mode) {
    for (const double start : {2.0, -2.0}) {
      Tensor x = tensor({start}, requires_grad());
      Tensor y = mode.call([&] {
        return cond(
                   x.sum() > 0, [](const Tensor& t) { return t.log() * 2.0; },
                   [](const Tensor& t) { return t * t * t; }, x)
            .sum();
      });
      Tensor g;
      mode.backward([&] { g = autograd::grad({y}, {x}, {}, true, true)[0]; });
      CHECK(g.item<double>() == (start > 0 ? 1.0 : 12.0));
      Tensor gg;
      mode.backward([&] { gg = autograd::grad({g.sum()}, {x})[0]; });
      CHECK(gg.item<double>() == (start > 0 ? -0.5 : -12.0));
    }
  });
}

TEST_CASE("both branches are called when they are recorded, and none when their graph runs") {
  on_each_backend([](const CompileOptions& options) {
    int first = 0, second = 0;
    double factor = 2;
    auto f = compile(
        [&](Tensor x) {
          Tensor y = cond(
              x.sum() > 0,
              [&](const Tensor& t) {
                ++first;
                Tensor own = zeros_like(t);
                own.add_(t * factor);
                return own;
              },
              [&](const Tensor& t) { return ++second, t - 1.0; }, x);
          factor = 100;  // too late for the branch, as in eager mode
          return y;
        },
        options);
    for (const double k : {1.0, -1.0, 3.0}) {
      factor = 2;
      CHECK(f(full({2}, k)).equal(full({2}, k > 0 ? 2 * k : k - 1)));
    }
    CHECK(first == 3);
    CHECK(second == 3);
    CHECK(f.stats().graphs == 1);
  });
}

TEST_CASE("branches that differ in shape, write outside or register hooks are refused") {
  const Tensor x = ones({2}), p = ones({2}), w = ones({2}, requires_grad());
  auto same = [](const Tensor& t) { return t + 1.0; };
  auto refused = [&](auto branch, const char* why) {
    auto f = compile([&] { return cond(x.sum() > 0, branch, same, x); });
    CHECK_THROWS_WITH_AS(f(), doctest::Contains(why), Error);
  };
  refused([](const Tensor& t) { return t.sum(); }, "one branch returns f32[] and the other f32[2]");
  refused([&](const Tensor& t) { return p.add_(t) * 1.0; },
          "writes to a tensor that it did not make");
  refused(
      [&](const Tensor& t) {
        w.register_hook([](const Tensor&) {});
        return t * 1.0;
      },
      "registers a hook");
  refused([](const Tensor& t) { return t + rand({2}); }, "branch draws random numbers (uniform)");
  refused([](const Tensor&) { return Tensor(); }, "branch returns an undefined tensor");
  CHECK(p[0].item<float>() == 1.0f);
}
