/// compiled-hooks.md section 4.1: which backward passes share a graph.
#include "tests/compile/modes.h"

using namespace grapnel;
using autograd::AutogradContext;

namespace {

using Values = std::vector<double>;

struct Model {
  std::vector<nn::Linear> layers;
  explicit Model(int count = 2, int64_t width = 4) {
    for (int i = 0; i < count; ++i) layers.emplace_back(width, width);
  }
  Tensor operator()(Tensor x) const {
    for (const nn::Linear& layer : layers) x = layer(x).relu();
    return x;
  }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const nn::Linear& layer : layers) {
      all.push_back(layer->weight);
      all.push_back(layer->bias);
    }
    return all;
  }
  void zero_grad() const {
    for (const Tensor& p : parameters()) p.reset_grad();
  }
};

/// Runs scenario(mode), which returns what it computed, in all modes and compares with eager mode
/// bit by bit.
template <class Scenario>
void expect_as_eager(Most most, Scenario scenario) {
  auto run = [&](Mode& mode) -> std::vector<Tensor> {
    manual_seed(123);
    return scenario(mode);
  };
  Mode eager;
  const std::vector<Tensor> want = run(eager);
  in_all_modes(most, [&](Mode& mode) {
    const std::vector<Tensor> got = run(mode);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i].defined());
      CHECK(same_bits(got[i], want[i]));
    }
    CHECK(mode.breaks == 0);
  });
}

/// Forward and backward of the sum of model(x); appends the gradients.
void step(Mode& mode, const Model& model, const Tensor& x, std::vector<Tensor>& results) {
  Tensor loss = mode.call([&] { return model(x).sum(); });
  mode.backward([&] { loss.backward(); });
  for (const Tensor& p : model.parameters()) results.push_back(p.grad().clone());
}

}  // namespace

TEST_CASE("compiled.49 a small model has one graph each way and four right gradients") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    step(mode, Model(), randn({2, 4}), results);
    CHECK(results.size() == 4);
    return results;
  });
}

TEST_CASE("compiled.50 fresh models of one form share their graphs") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    for (int i = 0; i < 3; ++i) step(mode, Model(), randn({2, 4}), results);
    return results;
  });
}

TEST_CASE("compiled.51 gradients of several uses are added inside the graph") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    Tensor y = randn({5}).requires_grad_();
    for (int i = 0; i < 3; ++i) {
      const Tensor x = randn({5});
      y.reset_grad();
      Tensor out = mode.call([&] { return sigmoid(x * y + sin(y) + cos(y)).sum(); });
      mode.backward([&] { out.backward(); });
      results.push_back(y.grad().clone());
    }
    return results;
  });
}

TEST_CASE("compiled.52 the batch size is an argument of the graph") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    const Model model;
    for (int64_t batch = 10; batch < 100; batch += 10) {
      model.zero_grad();
      step(mode, model, randn({batch, 4}), results);
    }
    return results;
  });
}

TEST_CASE("compiled.53 the first batch size is no special one") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    const Model model(3);
    for (int64_t batch = 3; batch <= 6; ++batch) {
      model.zero_grad();
      const int64_t before = mode.backward_graphs;
      step(mode, model, randn({batch, 4}), results);
      if (batch > 3) CHECK(mode.backward_graphs == before);
    }
    return results;
  });
}

TEST_CASE("compiled.54 sizes of views are arguments, too") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    const Model model;
    for (const int64_t rows : {2, 4, 8}) {
      model.zero_grad();
      const Tensor x = randn({8, 4});
      Tensor loss = mode.call([&] { return model(x).view({rows, -1}).sum(); });
      mode.backward([&] { loss.backward(); });
      for (const Tensor& p : model.parameters()) results.push_back(p.grad().clone());
    }
    return results;
  });
}

TEST_CASE("compiled.55 gradients that are never cleared cost one more graph") {
  expect_as_eager({.F = 1, .B = 2}, [](Mode& mode) {
    std::vector<Tensor> results;
    const Model model;
    for (int i = 0; i < 10; ++i) step(mode, model, randn({10, 4}), results);
    return results;
  });
}

TEST_CASE("compiled.56 a preset grad is added to and stays the same object") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    const Model model;
    for (int i = 0; i < 10; ++i) {
      std::vector<Tensor> preset;
      for (const Tensor& p : model.parameters()) {
        preset.push_back(rand_like(p));
        p.set_grad(preset.back());
      }
      step(mode, model, randn({10, 4}), results);
      for (size_t k = 0; k < preset.size(); ++k)
        CHECK(model.parameters()[k].grad().is_same(preset[k]));
    }
    return results;
  });
}

TEST_CASE("compiled.57 asking for the gradient of another leaf is another graph") {
  expect_as_eager({.F = 1, .B = 2}, [](Mode& mode) {
    std::vector<Tensor> results;
    for (int which = 0; which < 2; ++which) {
      std::vector<Tensor> leaves;
      for (int i = 0; i < 3; ++i) leaves.push_back(randn({4}).requires_grad_());
      Tensor out = mode.call([&] { return (leaves[0] * leaves[1] * leaves[2]).sum(); });
      mode.backward(
          [&] { out.backward({}, {}, false, variable_list{leaves[static_cast<size_t>(which)]}); });
      for (int i = 0; i < 3; ++i)
        CHECK(leaves[static_cast<size_t>(i)].grad().defined() == (i == which));
      results.push_back(leaves[static_cast<size_t>(which)].grad());
    }
    return results;
  });
}

namespace {
struct Unneeded : autograd::Function<Unneeded> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list) {
    throw std::runtime_error("a node that is not needed ran");
  }
};
}  // namespace

TEST_CASE(
    "compiled.58 only what leads to the requested inputs runs, and other leaves stay untouched") {
  struct Leaves {
    Tensor x = randn({4}).requires_grad_(), y = randn({4}).requires_grad_(),
           z = randn({4}).requires_grad_();
    bool untouched() const {
      return !x.grad().defined() && !y.grad().defined() && !z.grad().defined();
    }
  };
  SUBCASE("grad of all leaves") {
    expect_as_eager({}, [](Mode& mode) {
      Leaves l;
      Tensor out = mode.call([&] { return (l.x * l.y * l.z).sum(); });
      std::vector<Tensor> grads;
      mode.backward([&] { grads = autograd::grad({out}, {l.x, l.y, l.z}); });
      CHECK(l.untouched());
      return grads;
    });
  }
  SUBCASE("grad of some leaves") {
    expect_as_eager({}, [](Mode& mode) {
      Leaves l;
      Tensor out = mode.call([&] { return (l.x * l.y * Unneeded::apply(l.z)).sum(); });
      std::vector<Tensor> grads;
      mode.backward([&] { grads = autograd::grad({out}, {l.x, l.y}); });
      CHECK(l.untouched());
      return grads;
    });
  }
  SUBCASE("backward to all leaves") {
    expect_as_eager({}, [](Mode& mode) {
      Leaves l;
      Tensor out = mode.call([&] { return (l.x * l.y * l.z).sum(); });
      mode.backward([&] { out.backward({}, {}, false, variable_list{l.x, l.y, l.z}); });
      return std::vector<Tensor>{l.x.grad(), l.y.grad(), l.z.grad()};
    });
  }
  SUBCASE("backward to some leaves") {
    expect_as_eager({}, [](Mode& mode) {
      Leaves l;
      Tensor out = mode.call([&] { return (l.x * l.y * Unneeded::apply(l.z)).sum(); });
      mode.backward([&] { out.backward({}, {}, false, variable_list{l.x, l.y}); });
      CHECK(!l.z.grad().defined());
      return std::vector<Tensor>{l.x.grad(), l.y.grad()};
    });
  }
}

namespace {

struct SinSaved : autograd::Function<SinSaved> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    ctx->save_for_backward({x});
    return sin(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    return {g[0] * cos(ctx->get_saved_variables()[0])};
  }
};
/// The same, but another type.
struct SinAgain : autograd::Function<SinAgain> {
  static Tensor forward(AutogradContext* ctx, Tensor x) { return SinSaved::forward(ctx, x); }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    return SinSaved::backward(ctx, g);
  }
};
struct SavesTwice : autograd::Function<SavesTwice> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    ctx->save_for_backward({x, x, sin(x)});
    return x * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    const variable_list saved = ctx->get_saved_variables();
    return {g[0] * (saved[0] + saved[1]) * saved[2]};
  }
};
/// Keeps a tensor and a number as plain data.
struct SavesData : autograd::Function<SavesData> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    ctx->saved_data["cos"] = cos(x);
    ctx->saved_data["size"] = x.numel();
    return sin(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    return {g[0] * ctx->saved_data["cos"].toTensor() * ctx->saved_data["size"].toInt()};
  }
};
struct TwoGrads : autograd::Function<TwoGrads> {
  static variable_list forward(AutogradContext* ctx, Tensor x, Tensor y) {
    ctx->save_for_backward({x, y});
    return {x * y, x + y};
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    const variable_list saved = ctx->get_saved_variables();
    return {g[0] * saved[1] + g[1], g[0] * saved[0] + g[1]};
  }
};

/// One user function on vectors of several sizes.
template <class Apply>
void expect_one_graph_for_sizes(Apply apply,
                                std::initializer_list<int64_t> sizes = {10, 100, 10, 15, 20, 25}) {
  expect_as_eager({}, [&](Mode& mode) {
    std::vector<Tensor> results;
    for (const int64_t n : sizes) {
      Tensor x = arange(0, n, kFloat32).requires_grad_();
      Tensor loss = mode.call([&] { return apply(x); });
      mode.backward([&] { loss.backward(); });
      results.push_back(x.grad());
    }
    return results;
  });
}

}  // namespace

TEST_CASE(
    "compiled.59 user functions share one graph for all sizes, and what is saved twice is one "
    "input") {
  expect_one_graph_for_sizes([](Tensor x) { return SinSaved::apply(x).sum(); });
  expect_one_graph_for_sizes([](Tensor x) { return SavesTwice::apply(x).sum(); });
  expect_one_graph_for_sizes([](Tensor x) { return SavesData::apply(x).sum(); });
  expect_one_graph_for_sizes([](Tensor x) {
    const variable_list out = TwoGrads::apply(x, x * 2);
    return (out[0] + out[1]).sum();
  });
  Tensor x = ones({3}, requires_grad());
  Tensor loss = SavesTwice::apply(x).sum();
  const Graph g = trace(
      [&] {
        loss.backward();
        return std::vector<Tensor>{x.grad()};
      },
      {});
  int constants = 0;
  for (const Graph::Value& v : g.values()) constants += v.constant.defined();
  CAPTURE(g.str());
  CHECK(constants == 2);  // x and sin(x)
}

TEST_CASE("compiled.60 two user functions of equal formulas need no more than two graphs") {
  expect_as_eager({.F = 1, .B = 2}, [](Mode& mode) {
    std::vector<Tensor> results;
    for (int i = 0; i < 4; ++i) {
      Tensor x = randn({10}).requires_grad_();
      Tensor loss =
          mode.call([&] { return (i % 2 == 0 ? SinSaved::apply(x) : SinAgain::apply(x)).sum(); });
      mode.backward([&] { loss.backward(); });
      results.push_back(x.grad());
    }
    return results;
  });
}

namespace {
template <int k>
struct Times : autograd::Function<Times<k>> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * k; }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * k}; }
};
}  // namespace

TEST_CASE("compiled.61 function types that differ in a number share one graph") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    auto run = [&]<int k>(Times<k>) {
      Tensor x = randn({10}).requires_grad_();
      Tensor loss = mode.call([&] { return Times<k>::apply(x).sum(); });
      mode.backward([&] { loss.backward(); });
      results.push_back(x.grad());
    };
    run(Times<10>{});
    run(Times<20>{});
    run(Times<30>{});
    return results;
  });
}

namespace {
template <class Number>
struct Keeps : autograd::Function<Keeps<Number>> {
  static Tensor forward(AutogradContext* ctx, Tensor x, Number k) {
    ctx->saved_data["k"] = k;
    return x * k;
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    if constexpr (std::is_same_v<Number, double>)
      return {g[0] * ctx->saved_data["k"].toDouble(), {}};
    else return {g[0] * ctx->saved_data["k"].toInt(), {}};
  }
};
template <class Number>
void expect_one_graph_for_numbers(std::initializer_list<Number> numbers) {
  expect_as_eager({}, [&](Mode& mode) {
    std::vector<Tensor> results;
    for (const Number k : numbers) {
      Tensor x = randn({10}).requires_grad_();
      Tensor loss = mode.call([&] { return Keeps<Number>::apply(x, k).sum(); });
      mode.backward([&] { loss.backward(); });
      results.push_back(x.grad());
    }
    return results;
  });
}
}  // namespace

TEST_CASE("compiled.62 user nodes of any size and saved integer share one graph") {
  const auto sizes = {int64_t{10}, int64_t{100}, int64_t{10}, int64_t{20}, int64_t{10}};
  expect_one_graph_for_sizes([](Tensor x) { return Times<2>::apply(x).sum(); }, sizes);
  expect_one_graph_for_sizes([](Tensor x) { return SinSaved::apply(x).sum(); }, sizes);
  expect_one_graph_for_numbers<int64_t>({1, 2, 3, 1});
}

TEST_CASE("compiled.63 saved floats are arguments of the graph") {
  expect_one_graph_for_numbers<double>({1.1, 2.2, 3.3, 1.1});
}

namespace {
/// Has a second output that nobody uses; what backward does with it depends on the round.
struct Layout : autograd::Function<Layout> {
  static variable_list forward(AutogradContext* ctx, Tensor x, int64_t round) {
    if (round == 2) ctx->saved_data["extra"] = 2.0;
    if (round == 3) ctx->set_materialize_grads(false);
    return {x * 3, x * 5};
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    Tensor grad = g[0] * 3;
    if (g[1].defined()) grad = grad + g[1] * 5;
    if (ctx->saved_data.count("extra")) grad = grad * ctx->saved_data["extra"].toDouble();
    return {grad, {}};
  }
};
}  // namespace

TEST_CASE(
    "compiled.64 what backward does with its data makes the graph: three layouts, and the fourth "
    "round "
    "hits") {
  expect_as_eager({.F = 1, .B = 3}, [](Mode& mode) {
    std::vector<Tensor> results;
    int64_t before = 0;
    for (int64_t round = 1; round <= 4; ++round) {
      Tensor x = randn({10}).requires_grad_();
      Tensor loss = mode.call([&] { return Layout::apply(x, round)[0].sum(); });
      before = mode.backward_graphs;
      mode.backward([&] { loss.backward(); });
      results.push_back(x.grad());
    }
    CHECK(mode.backward_graphs == before);
    return results;
  });
}

TEST_CASE("compiled.65 a retained graph runs again, compiled and eager in turn") {
  in_all_modes({.F = 1, .B = 1}, [](Mode& mode) {
    Tensor x = tensor({2.0f}, requires_grad());
    Tensor y = mode.call([&] { return x.square(); });
    for (int i = 0; i < 6; ++i) {
      x.reset_grad();
      if (i % 2 == 0) mode.backward([&] { y.backward({}, true); });
      else y.backward({}, true);
      CHECK(values_of(x.grad()) == Values{4});
    }
    x.reset_grad();
    mode.backward([&] { y.backward(); });
    CHECK(values_of(x.grad()) == Values{4});
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("already been freed"), Error);
  });
}

TEST_CASE("compiled.66 four nested gradients with create_graph, and none compiled on repeat") {
  on_each_backend([](const CompileOptions& options) {
    for (int round = 0; round < 2; ++round) {
      Tensor x = tensor({2.0}, requires_grad());
      Tensor y = x.pow(3).sum();
      CompiledBackward scope(options);
      Values values;
      for (int order = 0; order < 4; ++order) {
        y = autograd::grad({y}, {x}, {}, true, true, true)[0].sum();
        values.push_back(y.item<double>());
      }
      CHECK(values == Values{12, 12, 6, 0});
      if (round == 0) CHECK(scope.stats().graphs <= 4);
      else CHECK(scope.stats().graphs == 0);
    }
  });
}
