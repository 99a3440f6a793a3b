/// compiled-hooks.md sections 2.2, 2.3 and 2.4: hooks on intermediates, post-accumulate hooks,
/// module hooks.
#include "tests/compile/modes.h"

using namespace grapnel;

namespace {
using Values = std::vector<double>;
Values repeated(size_t n, double x) { return Values(n, x); }
}  // namespace

TEST_CASE("compiled.16 a hook on an intermediate needs no compiled backward") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = rand({1}).requires_grad_();
    Tensor z = mode.call([&] {
      Tensor y = x + 1.0;
      y.register_hook([](const Tensor& g) { return g * 2.0; });
      return y + 1.0;
    });
    CHECK(same_bits(z.detach(), x.detach() + 1.0 + 1.0));
    mode.backward([&] { z.backward(); });
    CHECK(values_of(x.grad()) == Values{2});
  });
}

TEST_CASE("compiled.17 compiled.18 two hooks on an intermediate give the same in all modes") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    Tensor z = mode.call([&] {
      Tensor y = x * 2.0;
      y.register_hook([](const Tensor& g) { return g + 3.0; });
      y.register_hook([](const Tensor& g) { return g + 4.0; });
      return y * 3.0;
    });
    CHECK(values_of(z) == repeated(4, 6));
    mode.backward([&] { z.backward(ones({4})); });
    CHECK(values_of(x.grad()) == repeated(4, 20));
  });
}

TEST_CASE("compiled.19 a hook registered in forward is compiled in backward") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    Tensor z = mode.call([&] {
      x.register_hook([](const Tensor& g) { return g + 3.0; });
      return x * 2.0 * 3.0;
    });
    mode.backward([&] { z.backward(ones({4})); });
    CHECK(values_of(x.grad()) == repeated(4, 9));
  });
}

namespace {
struct Alternating {
  int count = 0;
  Tensor operator()(const Tensor& g) { return count++ % 2 == 0 ? g * g : g + g; }
};
}  // namespace

TEST_CASE("compiled.20 a stateful hook is called once per backward") {
  in_all_modes({}, [](Mode& mode) {
    Alternating object;
    auto run = [&](Tensor x, Mode& m) {
      Tensor z = m.call([&] {
        Tensor y = x * 2.0;
        y.register_hook(std::ref(object));
        y.register_hook(std::ref(object));
        return y * 3.0;
      });
      m.backward([&] { z.backward(ones({4})); });
      CHECK(values_of(x.grad()) == repeated(4, 36));
    };
    Mode eager;
    run(ones({4}, requires_grad()), eager);
    CHECK(object.count == 2);
    run(ones({4}, requires_grad()), mode);
    CHECK(object.count == 4);
  });
}

TEST_CASE("compiled.21 a hook that reads values fails under fullgraph and passes without") {
  for (const bool fullgraph : {true, false})
    in_all_modes(
        {.F = 1, .B = 3},
        [&](Mode& mode) {
          int count = 0;
          std::string text;
          auto hook = [&](const Tensor& g) {
            text = g.str();
            return count++ % 2 == 0 ? g * g : g + g;
          };
          Tensor x = ones({4}, requires_grad());
          Tensor z = mode.call([&] {
            Tensor y = x * 2.0;
            y.register_hook(hook);
            y.register_hook(hook);
            return y * 3.0;
          });
          if (fullgraph && mode.compiled_backward) {
            CHECK_THROWS_WITH_AS(mode.backward([&] { z.backward(ones({4})); }),
                                 doctest::Contains("fullgraph"), Error);
            CHECK(count == 0);
            CHECK(!x.grad().defined());
          } else {
            mode.backward([&] { z.backward(ones({4})); });
            CHECK(count == 2);
            CHECK(values_of(x.grad()) == repeated(4, 36));
          }
        },
        fullgraph);
}

TEST_CASE(
    "compiled.22 what a hook holds is no part of the forward key, and callables share the cache") {
  in_all_modes({.F = 1, .B = 2}, [](Mode& mode) {
    const Scalar scalars[] = {88, 88, 99, 11};
    const double want[] = {182, 182, 204, 28};
    for (int i = 0; i < 4; ++i) {
      Tensor x = ones({4}, requires_grad());
      const Tensor val = i < 3 ? tensor(scalars[i].to_int()) : Tensor();
      Tensor z = mode.call([&] {
        Tensor y = x * 2.0;
        y.register_hook([val](const Tensor& g) { return val.defined() ? g + val : g + 11; });
        return y * 3.0;
      });
      mode.backward([&] { z.backward(ones({4})); });
      CHECK(values_of(x.grad()) == repeated(4, want[i]));
    }
  });
}

TEST_CASE("compiled.23 compiled.25 compiled.26 a captured tensor of a hook is lifted") {
  for (const bool on_input : {true, false})
    in_all_modes({}, [&](Mode& mode) {
      const double want[2][2] = {{47.9066424, 53.8499678}, {88.3600395, 99.3600395}};
      int round = 0;
      for (const int64_t val : {88, 99}) {
        Tensor x = ones({4}, requires_grad());
        const Tensor kept = tensor(val);
        Tensor loss = mode.call([&] {
          Tensor y = sin(x);
          auto hook = [kept](const Tensor& g) { return g + kept; };
          if (on_input) x.register_hook(hook);
          else y.register_hook(hook);
          return sin(y).sum();
        });
        mode.backward([&] { loss.backward(); });
        CHECK(x.grad().dtype() == kFloat32);
        for (double v : values_of(x.grad()))
          CHECK(v == doctest::Approx(want[on_input][round]).epsilon(1.3e-6));
        ++round;
      }
    });
}

TEST_CASE("compiled.24 a hook may hold an intermediate of the same call") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    HookHandle handle;
    Tensor loss = mode.call([&] {
      Tensor y = sin(x);
      auto inner = [&] { handle = x.register_hook([y](const Tensor& g) { return g + y; }); };
      inner();
      return sin(y).sum();
    });
    mode.backward([&] { loss.backward(); });
    for (double v : values_of(x.grad())) CHECK(v == doctest::Approx(1.2015105).epsilon(1.3e-6));
    handle.remove();  // x owns the hook, the hook owns y, and y's history owns x
  });
}

TEST_CASE("compiled.27 rebinding a hook does not recompile the forward function") {
  in_all_modes({.F = 1, .B = 2}, [](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    std::function<Tensor(const Tensor&)> bound = [](const Tensor& g) { return g + 0; };
    for (int round = 0; round < 2; ++round) {
      Tensor z = mode.call([&] {
        Tensor y = x * 2.0;
        auto hook = [&](const Tensor& g) { return bound(g); };
        y.register_hook(hook);
        y.register_hook(hook);
        return y * 3.0;
      });
      mode.backward([&] { z.backward(ones({4})); });
      CHECK(values_of(x.grad()) == repeated(4, round == 0 ? 6 : 30));
      bound = [](const Tensor& g) { return g * 2; };
    }
  });
}

TEST_CASE("compiled.28 changing a bound scalar never recompiles") {
  in_all_modes({}, [](Mode& mode) {
    for (const double k : {1.0, 2.0}) {
      Tensor x = rand({2}).requires_grad_();
      Tensor z = mode.call([&] {
        Tensor y = x * 2.0;
        y.register_hook([k](const Tensor& g) { return g * k; });
        return y * 3.0;
      });
      mode.backward([&] { z.sum().backward(); });
      CHECK(values_of(x.grad()) == repeated(2, 6 * k));
    }
  });
}

TEST_CASE(
    "compiled.29 compiled.33 an intermediate's hook is captured, also one that returns nothing") {
  for (const bool returns : {true, false})
    in_all_modes({}, [&](Mode& mode) {
      Tensor x = ones({4}, requires_grad());
      Tensor loss = mode.call([&] {
        Tensor y = x * 2.0;
        if (returns) y.register_hook([](const Tensor& g) { return g + 1.0; });
        else y.register_hook([](const Tensor&) {});
        return y.sum();
      });
      mode.backward([&] { loss.backward(); });
      CHECK(values_of(x.grad()) == repeated(4, returns ? 4 : 2));
    });
}

TEST_CASE("compiled.30 a hook applies to uses before its registration and through containers") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    Tensor loss = mode.call([&] {
      Tensor y = x * 2.0;
      std::vector<Tensor> list{y};
      std::map<std::string, Tensor> map{{"y", y}};
      Tensor a = list[0] * 3.0, b = map["y"];
      y.register_hook([](const Tensor& g) { return g + 1.0; });
      return (a + b).sum();
    });
    mode.backward([&] { loss.backward(); });
    CHECK(values_of(x.grad()) == repeated(4, 10));
  });
}

TEST_CASE("compiled.31 compiled.34 a hook sees the sum of all uses once") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({2}, requires_grad());
    int fired = 0;
    Tensor loss = mode.call([&] {
      Tensor y = x * 2.0;
      Tensor z = y + 1.0;
      y.register_hook([&](const Tensor& g) {
        ++fired;
        return g * 2.0;
      });
      Tensor w = y * 3.0;
      return (z + w).sum();
    });
    mode.backward([&] { loss.backward(); });
    CHECK(values_of(x.grad()) == repeated(2, 16));
    CHECK(fired == 1);
  });
}

TEST_CASE("compiled.35 a hook that keeps its gradient in a list has it after the pass") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({3}, requires_grad());
    std::vector<Tensor> list;
    Tensor loss = mode.call([&] {
      Tensor y = x * 2.0;
      y.register_hook([&](const Tensor& g) {
        list.push_back(g);
        return g * 2.0;
      });
      return (y + x).sum();
    });
    mode.backward([&] { loss.backward(); });
    CHECK(values_of(x.grad()) == repeated(3, 5));
    REQUIRE(list.size() == 1);
    CHECK(values_of(list[0]) == repeated(3, 1));
  });
}

TEST_CASE("compiled.36 a post-accumulate hook edits leaf and gradient, and the seed is not taken") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = full({3}, 0.5, requires_grad()), y = tensor({1.0f, 2.0f, 3.0f}),
           b = full({3}, 2.0, requires_grad());
    mode.call([&] {
      x.register_post_accumulate_grad_hook([](Tensor t) {
        NoGradGuard off;
        t.mul_(t.grad());
        t.mutable_grad().mul_(5.0);
      });
      return x * y;
    });
    mode.backward([&] { x.backward(b); });
    CHECK(values_of(x) == repeated(3, 1));
    CHECK(values_of(x.grad()) == repeated(3, 10));
    CHECK(values_of(b) == repeated(3, 2));
  });
}

TEST_CASE("compiled.38 equal traces of different modules share one graph") {
  on_each_backend([](const CompileOptions& options) {
    Tensor x = ones({16, 16}), want = x;
    int64_t graphs = 0;
    for (int i = 0; i < 10; ++i) {
      nn::Linear layer(16, 16);
      layer->register_forward_pre_hook(
          [](nn::Module&, const nn::Args& in) { return in[0].toTensor() + 1; });
      auto f = compile([&](Tensor t) { return layer(t); }, options);
      NoGradGuard off;
      want = layer(want);
      x = f(x);
      graphs += f.stats().graphs;
    }
    CHECK(graphs == 1);
    CHECK(same_bits(x, want));
  });
}

TEST_CASE("compiled.39 a hook that is registered later takes effect") {
  on_each_backend([](const CompileOptions& options) {
    nn::Linear layer(16, 16);
    auto f = compile([&](Tensor t) { return layer(t); }, options);
    const Tensor x = ones({2, 16});
    f(x);
    layer->register_forward_hook(
        [](nn::Module&, const nn::Args&, const Tensor& out) { return out * 2; });
    CHECK(same_bits(f(x).detach(), layer(x).detach()));
    CHECK(f.stats().graphs == 2);
  });
}
