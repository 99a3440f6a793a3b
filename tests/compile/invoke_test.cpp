/// compiled-hooks.md, the rest of section 2.4 (modules inside a capture) and section 3 (invoke). x
/// = y = [.5,.5].
#include "tests/compile/modes.h"

using namespace grapnel;

namespace {

using Values = std::vector<double>;

Tensor times_itself(const Tensor& g) { return g * g; }
Tensor invoked_square(const Tensor& g) { return invoke(times_itself, g); }

struct Halves {
  Tensor x = full({2}, 0.5, requires_grad()), y = full({2}, 0.5, requires_grad());
};

/// The seeds of the specification, and one whose square is neither itself nor its double.
const Tensor kSeeds[] = {tensor({2.0f, 2.0f}), tensor({3.0f, 5.0f})};
Values squares(const Tensor& t, double factor = 1) {
  Values out;
  for (double v : values_of(t)) out.push_back(factor * v * factor * v);
  return out;
}

}  // namespace

TEST_CASE(
    "compiled.40 a module's own hooks are inside the capture, and a hook may return one tensor") {
  on_each_backend([](const CompileOptions& options) {
    nn::Linear layer(nn::LinearOptions(18, 18).bias(false));
    layer->register_forward_pre_hook(
        [](nn::Module&, const nn::Args& in) { return in[0].toTensor() + 1; });
    const Tensor x = randn({3, 18}), want = layer(x).detach();
    auto outside = compile([&](Tensor t) { return layer(t); }, options);
    CHECK(same_bits(outside(x).detach(), want));
    CHECK(outside.stats().graphs == 1);
    auto itself = compile(layer, options);
    CHECK(same_bits(itself(x).detach(), want));
    CHECK(itself.stats().graphs == 0);
    CHECK(outside.stats().breaks + itself.stats().breaks == 0);
  });
}

TEST_CASE("compiled.41 a compiled function is not counted as a module") {
  on_each_backend([](const CompileOptions& options) {
    int count = 0;
    std::vector<std::string> warnings;
    set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
    HookHandle h = nn::register_module_forward_pre_hook([&](nn::Module&, const nn::Args& in) {
      ++count;
      return in;
    });
    nn::Linear layer(4, 4);
    const Tensor x = ones({2, 4}), want = layer(x).detach();
    CHECK(count == 1);
    auto f = compile(layer, options);
    CHECK(same_bits(f(x).detach(), want));
    CHECK(count == 2);
    h.remove();
    set_warning_handler(nullptr);
    CHECK(warnings.empty());
  });
}

TEST_CASE("compiled.42 compiled.43 invoke in a hook is the function itself, captured or not") {
  in_all_modes({.F = 1, .B = 1}, [](Mode& mode) {
    for (const Tensor& seed : kSeeds) {
      Halves s;
      Tensor out = mode.call([&] {
        s.x.register_hook(invoked_square);
        return s.x * s.y;
      });
      mode.backward([&] { out.backward(seed); });
      CHECK(values_of(s.x.grad()) == squares(seed, 0.5));
      CHECK(s.x.grad().requires_grad() == false);
    }
  });
}

TEST_CASE("compiled.44 a traced invoke is one op of its argument's shape, and runs") {
  const Graph g = trace(invoked_square, {full({2}, 0.5)});
  CHECK(g.str() == "graph(a: f32[2]) {\n  b = invoke(a) : f32[2]\n  return b\n}\n");
  CHECK(values_of(g.run({full({2}, 0.5)})[0]) == Values{0.25, 0.25});
}

TEST_CASE("compiled.45 the same on a gradient") {
  Tensor x = full({2}, 0.5, requires_grad());
  Tensor z = x * x;
  (z + z).backward(ones({2}));
  CHECK(values_of(x.grad()) == Values{2, 2});
  const Graph g = trace(invoked_square, {x.grad()});
  CHECK(g.instructions().size() == 1);
  CHECK(g.count("invoke") == 1);
  CHECK(values_of(g.run({x.grad()})[0]) == Values{4, 4});
}

TEST_CASE(
    "compiled.46 a compiled backward enters an invoked function and leaves no invoke behind") {
  in_all_modes({}, [](Mode& mode) {
    for (const Tensor& seed : kSeeds) {
      Halves s;
      Tensor out = mode.call([&] {
        s.x.register_hook(invoked_square);
        return s.x + s.y;
      });
      mode.backward([&] { out.backward(seed); });
      CHECK(values_of(s.x.grad()) == squares(seed));
      CHECK(values_of(s.y.grad()) == values_of(seed));
    }
  });
  Halves s;
  s.x.register_hook(invoked_square);
  Tensor out = s.x + s.y;
  const Graph g = trace(
      [&](Tensor seed) {
        out.backward(seed);
        return std::vector<Tensor>{s.x.grad(), s.y.grad()};
      },
      {kSeeds[0]});
  CAPTURE(g.str());
  CHECK(g.count("invoke") == 0);
  REQUIRE(g.instructions().size() == 2);
  CHECK(g.instructions()[0].op->name == "mul");
  CHECK(g.instructions()[1].op->name == "copy");
}

TEST_CASE("compiled.47 a counter in an invoked hook is plain state of the program") {
  on_each_backend([](CompileOptions options) {
    options.fullgraph = true;
    for (const Tensor& seed : kSeeds) {
      reset_compile_cache();
      Halves s;
      int counter = 0;
      s.x.register_hook([&](const Tensor& g) {
        return invoke(
            [&](const Tensor& t) {
              ++counter;
              return t * t;
            },
            g);
      });
      Tensor out = s.x + s.y;
      {
        CompiledBackward scope(options);
        out.backward(seed, true);
        CHECK(scope.stats().graphs == 1);
      }
      CHECK(values_of(s.x.grad()) == squares(seed));
      CHECK(counter == 1);
      out.backward(seed, true);
      CHECK(counter == 2);
      out.backward(seed);
      CHECK(counter == 3);
    }
  });
}

TEST_CASE(
    "compiled.48 printing constant text does not break the graph, printing the gradient does") {
  in_all_modes({}, [](Mode& mode) {
    Halves s;
    std::ostringstream printed;
    s.x.register_hook([&](const Tensor& g) {
      return invoke(
          [&](const Tensor& t) {
            printed << "hook;";
            return t * t;
          },
          g);
    });
    Tensor out = mode.call([&] { return s.x + s.y; });
    mode.backward([&] { out.backward(kSeeds[0]); });
    CHECK(printed.str() == "hook;");
    CHECK(mode.breaks == 0);
    CHECK(values_of(s.x.grad()) == Values{4, 4});
  });
  for (const bool fullgraph : {true, false})
    in_all_modes(
        {.F = 1, .B = 2},
        [&](Mode& mode) {
          Halves s;
          std::ostringstream printed;
          s.x.register_hook([&](const Tensor& g) {
            return invoke(
                [&](const Tensor& t) {
                  printed << t * 1;
                  return t * t;
                },
                g);
          });
          Tensor out = mode.call([&] { return s.x + s.y; });
          if (fullgraph && mode.compiled_backward) {
            CHECK_THROWS_WITH_AS(mode.backward([&] { out.backward(kSeeds[0]); }),
                                 doctest::Contains("fullgraph"), Error);
            CHECK(!s.x.grad().defined());
          } else {
            mode.backward([&] { out.backward(kSeeds[0]); });
            CHECK(values_of(s.x.grad()) == Values{4, 4});
          }
        },
        fullgraph);
}

TEST_CASE("an invoked function may not change size, type or layout, and has no gradient") {
  const Tensor x = ones({2, 3});
  for (const bool compiled : {false, true}) {
    CAPTURE(compiled);
    auto run = [&](auto f) {
      auto body = [&] { return invoke(f, x); };
      if (compiled) compile(body)();
      else body();
    };
    CHECK_THROWS_WITH_AS(run([](const Tensor& t) { return t[0]; }),
                         doctest::Contains("size mismatch"), Error);
    CHECK_THROWS_WITH_AS(run([](const Tensor& t) { return t.to(kFloat64); }),
                         doctest::Contains("dtype mismatch"), Error);
    CHECK_THROWS_WITH_AS(run([](const Tensor& t) { return t.t().contiguous().t(); }),
                         doctest::Contains("stride mismatch"), Error);
  }
  Tensor leaf = ones({2}, requires_grad());
  const Tensor out = invoke(times_itself, leaf).sum();
  CHECK_THROWS_WITH_AS(out.backward(),
                       doctest::Contains("invoke: the gradient of an invoked function"), Error);
}

TEST_CASE("a graph with an invoked function runs on other inputs than it was traced with") {
  int calls = 0;
  const auto twice = [&](const Tensor& v) { return ++calls, v * 2; };
  const Tensor w = full({2}, 10.0);
  const Graph graph = trace(
      [&](const Tensor& a) { return invoke(twice, a) + invoke(twice, a + 1) + invoke(twice, w); },
      {ones({2})});
  CHECK(calls == 0);
  CHECK(values_of(graph.run({full({2}, 5.0)})[0]) == std::vector{42.0, 42.0});
  CHECK(calls == 3);
}
