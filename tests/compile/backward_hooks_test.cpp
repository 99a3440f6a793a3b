/// compiled-hooks.md section 4.2: every kind of hook in a compiled backward pass. Chains of
/// numbers, so that all values are exact.
#include <cstdio>

#include "grapnel/compile/session.h"
#include "tests/compile/modes.h"

using namespace grapnel;
using autograd::AutogradContext;

namespace {

using Values = std::vector<double>;

/// A leaf whose incoming gradient is g, after `prepare(leaf)` registered hooks; its grad() after
/// the pass.
template <class Prepare>
void expect_leaf_grad(double g, double want, Prepare prepare) {
  in_all_modes({}, [&](Mode& mode) {
    Tensor x = ones({3}, requires_grad());
    prepare(x);
    Tensor loss = mode.call([&] { return (x * g).sum(); });
    mode.backward([&] { loss.backward(); });
    for (double v : values_of(x.grad())) CHECK(v == doctest::Approx(want).epsilon(1e-6));
  });
}

/// Runs scenario(mode) eagerly first, then in all modes, and compares what it returns bit by bit.
template <class Scenario>
void expect_as_eager(Most most, Scenario scenario, bool fullgraph = true) {
  auto run = [&](Mode& mode) -> std::vector<Tensor> {
    manual_seed(5);
    return scenario(mode);
  };
  Mode eager;
  const std::vector<Tensor> want = run(eager);
  in_all_modes(
      most,
      [&](Mode& mode) {
        const std::vector<Tensor> got = run(mode);
        REQUIRE(got.size() == want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          CAPTURE(i);
          CHECK(same_bits(got[i], want[i]));
        }
      },
      fullgraph);
}

void replace_grad(const Tensor& leaf, const std::function<Tensor(const Tensor&)>& f) {
  leaf.set_grad(f(leaf.grad()));
}

}  // namespace

TEST_CASE("compiled.67 a hook on the weight, in three fresh models") {
  expect_as_eager({}, [](Mode& mode) {
    std::vector<Tensor> results;
    for (int i = 0; i < 3; ++i) {
      nn::Linear layer(4, 4);
      layer->weight.register_hook([](const Tensor& g) { return g * 2.0; });
      const Tensor x = randn({2, 4});
      Tensor loss = mode.call([&] { return layer(x).relu().sum(); });
      mode.backward([&] { loss.backward(); });
      results.push_back(layer->weight.grad());
    }
    return results;
  });
}

TEST_CASE("compiled.68 compiled.69 hooks before and after the sum node") {
  for (const bool before : {true, false})
    in_all_modes({}, [&](Mode& mode) {
      for (int i = 0; i < 3; ++i) {
        Tensor x = randn({4}).requires_grad_();
        Tensor loss = mode.call([&] {
          Tensor sum = x.sum();
          if (before)
            sum.grad_fn()->register_prehook(
                [](const variable_list& g) { return variable_list{g[0] + 1.0}; });
          else
            sum.grad_fn()->register_hook([](const variable_list& in, const variable_list& out) {
              return variable_list{sin(in[0]) + out[0]};
            });
          return sum;
        });
        mode.backward([&] { loss.backward(); });
        for (double v : values_of(x.grad()))
          CHECK(v == doctest::Approx(before ? 2 : 1.8414710).epsilon(1.3e-6));
      }
    });
}

TEST_CASE("compiled.70 accumulation keeps its place: two convolutions, graph retained") {
  expect_as_eager({.F = 1, .B = 2}, [](Mode& mode) {
    nn::Conv2d first(nn::Conv2dOptions(2, 3, 3)), second(nn::Conv2dOptions(3, 2, 3));
    const Tensor x = randn({1, 2, 8, 8});
    Tensor loss = mode.call([&] { return second(first(x)).sum(); });
    std::vector<Tensor> results, seen;
    first->weight.register_post_accumulate_grad_hook(
        [&](const Tensor& leaf) { seen.push_back(leaf.grad() + 0.0); });
    for (int i = 0; i < 2; ++i) {
      mode.backward([&] { loss.backward({}, true); });
      for (const Tensor& p : {first->weight, first->bias, second->weight, second->bias})
        results.push_back(p.grad().clone());
      CHECK(same_bits(seen.back(), first->weight.grad()));
    }
    return results;
  });
}

TEST_CASE("compiled.71 a post-hook of the accumulate node replaces grad") {
  expect_leaf_grad(8, 2, [](const Tensor& x) {
    grad_accumulator(x)->register_hook([&x](const variable_list&, const variable_list&) {
      replace_grad(x, [](const Tensor& g) { return g / 4.0; });
    });
  });
}

TEST_CASE("compiled.72 post-hooks of two nodes of a chain") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = zeros({3}, requires_grad());
    Tensor z = mode.call([&] {
      Tensor y = sigmoid(x);
      Tensor t = tanh(y);
      t.grad_fn()->register_hook([](const variable_list&, const variable_list& out) {
        return variable_list{out[0] * 2.0};
      });
      y.grad_fn()->register_hook(
          [](const variable_list& in, const variable_list&) { return variable_list{in[0] * 2.0}; });
      return t;
    });
    mode.backward([&] { z.sum().backward(); });
    CHECK(values_of(x.grad()) == Values{1, 1, 1});
  });
}

TEST_CASE("compiled.73 a post-hook may change one gradient of three") {
  in_all_modes({}, [](Mode& mode) {
    Tensor bias = ones({2}, requires_grad()), weight = full({2, 2}, 2.0, requires_grad()),
           x = full({2, 2}, 3.0, requires_grad());
    Tensor loss = mode.call([&] {
      Tensor out = addmm(bias, weight, x);
      out.grad_fn()->register_hook([](const variable_list& in, const variable_list&) {
        return variable_list{in[0], in[1] * 2.0, in[2]};
      });
      return out.sum();
    });
    mode.backward([&] { loss.backward(); });
    CHECK(values_of(bias.grad()) == Values{2, 2});
    CHECK(values_of(weight.grad()) == Values{12, 12, 12, 12});
    CHECK(values_of(x.grad()) == Values{4, 4, 4, 4});
  });
}

TEST_CASE("compiled.74 every kind of hook on one leaf") {
  expect_leaf_grad(7, 2, [](const Tensor& x) {
    grad_accumulator(x)->register_hook([&x](const variable_list&, const variable_list&) {
      replace_grad(x, [](const Tensor& g) { return g * 0.5; });
    });
    x.register_post_accumulate_grad_hook(
        [](const Tensor& leaf) { replace_grad(leaf, [](const Tensor& g) { return g + 3.0; }); });
    grad_accumulator(x)->register_prehook(
        [](const variable_list& g) { return variable_list{g[0] / 5.0}; });
    x.register_hook([](const Tensor& g) { return g - 2.0; });
  });
}

TEST_CASE("compiled.75 two post-hooks of an accumulate node run in order") {
  for (const bool first_half : {true, false})
    expect_leaf_grad(2, first_half ? 0.7 : 0.1, [=](const Tensor& x) {
      const double factor = first_half ? 0.5 : 0.3, less = first_half ? 0.3 : 0.5;
      grad_accumulator(x)->register_hook([&x, factor](const variable_list&, const variable_list&) {
        replace_grad(x, [=](const Tensor& g) { return g * factor; });
      });
      grad_accumulator(x)->register_hook([&x, less](const variable_list&, const variable_list&) {
        replace_grad(x, [=](const Tensor& g) { return g - less; });
      });
    });
}

TEST_CASE("compiled.76 compiled.77 two pre-hooks and two tensor hooks run in order") {
  expect_leaf_grad(4, 0.5, [](const Tensor& x) {
    grad_accumulator(x)->register_prehook(
        [](const variable_list& g) { return variable_list{g[0] / 5.0}; });
    grad_accumulator(x)->register_prehook(
        [](const variable_list& g) { return variable_list{g[0] - 0.3}; });
  });
  expect_leaf_grad(6, 2, [](const Tensor& x) {
    x.register_hook([](const Tensor& g) { return g - 2.0; });
    x.register_hook([](const Tensor& g) { return g * 0.5; });
  });
}

TEST_CASE("compiled.78 hooks of all nodes fire in eager's order") {
  std::vector<std::string> want;
  in_all_modes({}, [&](Mode& mode) {
    std::vector<std::string> order;
    nn::Linear layer(2, 2);
    const Tensor x = ones({3, 2}, requires_grad());
    Tensor loss = mode.call([&] { return layer(x).sum(); });
    std::function<void(const NodePtr&)> watch = [&](const NodePtr& node) {
      node->register_prehook(
          [&order, name = node->name()](const variable_list&) { order.push_back(name + " pre"); });
      node->register_hook(
          [&order, name = node->name()](const variable_list&, const variable_list&) {
            order.push_back(name + " post");
          });
      for (const Edge& edge : node->next_edges())
        if (edge) watch(edge.node);
    };
    watch(loss.grad_fn());
    layer->weight.register_hook([&](const Tensor&) { order.push_back("weight tensor hook"); });
    layer->weight.register_post_accumulate_grad_hook(
        [&](const Tensor&) { order.push_back("weight post-accumulate"); });
    mode.backward([&] { loss.backward(); });
    if (want.empty()) want = order;
    CHECK(order == want);
    CHECK(order.size() == 2 * 6 + 2);
  });
}

TEST_CASE(
    "compiled.79 a hook that holds an object and an intermediate, and the graph that names an "
    "opaque one") {
  const double val = 88;
  ScopedHook hook;  // the hook owns c, whose history owns y, which owns the hook
  auto body = [&](const Tensor& x, auto wrap) {
    Tensor y = sin(x), c = y + 1.0;
    hook = y.register_hook(wrap([c, &val](const Tensor& g) { return g + val + c; }));
    return sin(y).sum();
  };
  auto traced = [](auto f) { return f; };
  in_all_modes({}, [&](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    Tensor loss = mode.call([&] { return body(x, traced); });
    mode.backward([&] { loss.backward(); });
    for (double v : values_of(x.grad())) CHECK(v == doctest::Approx(48.9015934).epsilon(1.3e-6));
  });
  Tensor x = ones({4}, requires_grad());
  Tensor loss = body(x, [](auto f) { return opaque(f); });
  const Graph g = trace(
      [&] {
        loss.backward();
        return std::vector<Tensor>{x.grad()};
      },
      {});
  CHECK(g.str().find(" = invoke(") != std::string::npos);
}

TEST_CASE("compiled.80 a saved tensor is unpacked when its node is visited, not before") {
  in_all_modes({}, [](Mode& mode) {
    int packed = 0, unpacked = 0;
    auto pack = [&](const Tensor& t) {
      ++packed;
      return t;
    };
    auto unpack = [&](const Tensor& t) {
      ++unpacked;
      return t;
    };
    Tensor x = full({4}, 3.0, requires_grad());
    Tensor loss = mode.call([&] {
      const autograd::SavedTensorHooks hooks(pack, unpack);
      return x.square().sum();
    });
    loss.register_hook([&](const Tensor&) { CHECK(unpacked == 0); });
    mode.backward([&] { loss.backward(); });
    CHECK(packed == 1);
    CHECK(unpacked == 1);
    CHECK(values_of(x.grad()) == Values{6, 6, 6, 6});
  });
}

namespace {

struct InFile {
  std::shared_ptr<std::FILE> file{std::tmpfile(), [](std::FILE* f) { std::fclose(f); }};
  Shape sizes;
};
struct InMemory {
  std::vector<float> values;
  Shape sizes;
};
InMemory to_memory(const Tensor& t) {
  const Tensor dense = t.contiguous();
  return {{dense.data_ptr<float>(), dense.data_ptr<float>() + dense.numel()}, t.shape()};
}
Tensor from_memory(const InMemory& m) {
  Tensor out = empty(m.sizes, kFloat32);
  std::copy(m.values.begin(), m.values.end(), out.data_ptr<float>());
  return out;
}
InFile to_file(const Tensor& t) {
  InFile out;
  out.sizes = t.shape();
  const InMemory m = to_memory(t);
  CHECK(std::fwrite(m.values.data(), sizeof(float), m.values.size(), out.file.get()) ==
        m.values.size());
  return out;
}
Tensor from_file(const InFile& in) {
  InMemory m{std::vector<float>(static_cast<size_t>(checked_numel(in.sizes, "from_file"))),
             in.sizes};
  std::rewind(in.file.get());
  CHECK(std::fread(m.values.data(), sizeof(float), m.values.size(), in.file.get()) ==
        m.values.size());
  return from_memory(m);
}

template <class Pack, class Unpack>
void expect_offloading_works(Pack pack, Unpack unpack) {
  // Packing reads values, so a captured forward breaks there; unpacking only makes tensors.
  expect_as_eager(
      {.F = 4, .B = 1},
      [&](Mode& mode) {
        std::vector<Tensor> results;
        for (const int64_t n : {10, 100, 10, 20, 30}) {
          Tensor x = randn({n}).requires_grad_();
          Tensor loss = mode.call([&] {
            const autograd::SavedTensorHooks hooks(pack, unpack);
            return sin(sin(x)).sum();
          });
          mode.backward([&] { loss.backward(); });
          results.push_back(x.grad());
        }
        return results;
      },
      /*fullgraph=*/false);
}

}  // namespace

TEST_CASE("compiled.81 saved tensors may wait in other memory or in a file") {
  expect_offloading_works(to_memory, from_memory);
  expect_offloading_works(to_file, from_file);
}

namespace {
Tensor block(const Tensor& x) { return sin(x) * exp(x); }

/// Checkpointing by hand: backward runs the block again and differentiates it in a pass of its own.
struct Rerun : autograd::Function<Rerun> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    ctx->save_for_backward({x});
    return block(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    const EnableGradGuard on;
    Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_();
    return autograd::grad({block(x)}, {x}, {g[0]});
  }
};
}  // namespace

TEST_CASE("compiled.82 a checkpointed block is run again inside the compiled pass") {
  auto scenario = [](auto apply) {
    return [apply](Mode& mode) {
      std::vector<Tensor> results;
      for (const int64_t n : {10, 20}) {
        Tensor x = randn({n}).requires_grad_();
        Tensor loss = mode.call([&] { return (apply(x * 2.0) + x).sum(); });
        mode.backward([&] { loss.backward(); });
        results.push_back(x.grad());
      }
      return results;
    };
  };
  expect_as_eager({}, scenario([](const Tensor& x) { return Rerun::apply(x); }));
  expect_as_eager({}, scenario([](const Tensor& x) { return autograd::checkpoint(block, x); }));
}

namespace {
struct DrawsAndDrops : autograd::Function<DrawsAndDrops> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list g) {
    (void)rand({4});
    return g;
  }
};
}  // namespace

TEST_CASE("compiled.83 a draw that nobody uses still moves the generator") {
  expect_as_eager({}, [](Mode& mode) {
    Tensor x = ones({3}, requires_grad());
    Tensor loss = mode.call([&] { return DrawsAndDrops::apply(x).sum(); });
    mode.backward([&] { loss.backward(); });
    return std::vector<Tensor>{x.grad(), rand({4})};
  });
}

TEST_CASE("compiled.84 a queued callback runs once, after the last piece of a broken graph") {
  for (const bool breaks : {true, false})
    in_all_modes(
        {.F = 1, .B = 2},
        [&](Mode& mode) {
          Tensor x = ones({3}, requires_grad());
          int called = 0;
          x.register_hook([&](const Tensor& g) {
            autograd::queue_callback([&] {
              ++called;
              CHECK(values_of(x.grad()) == Values{2, 2, 2});
            });
            if (breaks) CHECK(g.sum().item<float>() == 3.0f);
            return g * 2.0;
          });
          Tensor loss = mode.call([&] { return (x * 1).sum(); });
          mode.backward([&] { loss.backward(); });
          CHECK(called == 1);
        },
        /*fullgraph=*/!breaks);
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
  CHECK_THROWS_WITH_AS(raw->~CompiledBackward(), doctest::Contains("outer scope ended before"),
                       Error);
  end(inner);
  ::operator delete(outer.release());
  engine::set_pass_runner(nullptr);
}

TEST_CASE("scopes of backward end before their block does, and share what they remember") {
  reset_compile_cache();
  const auto session = std::make_shared<compiler::Session>(CompileOptions{});
  const Tensor x = ones({2}, requires_grad());
  for (int i = 0; i < 2; ++i) {
    x.reset_grad();
    CompiledBackward outer(session);
    {
      CompiledBackward inner;
      CHECK_THROWS_WITH_AS(outer.end(), doctest::Contains("outer scope ended before"), Error);
    }
    (x * x).sum().backward();  // the outer one goes on
    outer.end();
    (x * x).sum().backward();  // after its end
  }
  CHECK(session->stats().graphs == 1);
  CHECK(session->stats().hits == 1);
  CHECK(values_of(x.grad())[0] == 4);
}

namespace {
/// Its backward runs a pass of its own over a graph that has nothing to do with the outer one.
struct RunsAnotherPass : autograd::Function<RunsAnotherPass> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list g) {
    const EnableGradGuard on;
    Tensor inner = ones({3}, requires_grad());
    (inner * 5.0).sum().backward();
    return {g[0] + inner.grad()};
  }
};
}  // namespace

TEST_CASE(
    "compiled.86 scopes nest, a pass inside a pass is not counted, and outside a scope nothing is "
    "compiled") {
  on_each_backend([](const CompileOptions& options) {
    auto pass = [](int64_t n) {
      Tensor x = ones({n}, requires_grad());
      RunsAnotherPass::apply(x).sum().backward();
      CHECK(values_of(x.grad()) == Values(static_cast<size_t>(n), 6));
    };
    CompileCounter counter;
    pass(3);
    CHECK(counter.graphs() == 0);
    {
      CompiledBackward outer(options);
      {
        CompiledBackward inner(options);
        pass(3);
        CHECK(inner.stats().graphs == 1);
      }
      CHECK(outer.stats().graphs == 0);
      pass(3);
      CHECK(outer.stats().hits == 1);
    }
    CHECK(counter.graphs() == 1);
    counter.reset();
    pass(3);
    CHECK(counter.graphs() == 0);
    // A compiled function whose body is a backward pass is one graph, with no scope around it.
    Tensor x = ones({3}, requires_grad()), loss = (x * 2.0).sum();
    compile([&] { loss.backward(); }, options)();
    CHECK(counter.graphs() == 1);
    CHECK(values_of(x.grad()) == Values{2, 2, 2});
  });
}

namespace {
/// One pass over (x * 3).sum() in every mode, between `before(x)` and `after(x)`.
template <class Before, class After>
void around_pass(Before before, After after) {
  in_all_modes({}, [&](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    before(x);
    Tensor loss = mode.call([&] { return (x * 3.0).sum(); });
    mode.backward([&] { loss.backward(); });
    after(x);
  });
}
const Storage* storage_of(const Tensor& t) { return t.impl().storage.get(); }
}  // namespace

TEST_CASE("compiled.87 a fresh gradient becomes grad without a copy unless a hook keeps it") {
  const Storage* seen = nullptr;
  around_pass([&](Tensor x) { x.register_hook([&](const Tensor& g) { seen = storage_of(g); }); },
              [&](Tensor x) { CHECK(storage_of(x.grad()) == seen); });
  Tensor kept;
  around_pass([&](Tensor x) { x.register_hook([&](const Tensor& g) { kept = g; }); },
              [&](Tensor x) {
                CHECK(storage_of(x.grad()) != storage_of(kept));
                CHECK(values_of(kept) == Values{3, 3, 3, 3});
              });
}

TEST_CASE("compiled.87 a gradient that an opaque hook has seen becomes grad as in eager mode") {
  const auto memory_of = [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()); };
  // The gradient is a column laid out as a row: adopted, it keeps its strides.
  const auto column = [](Tensor x) {
    return (x.t() * arange(1, 5).to(kFloat32).view({4, 1})).sum();
  };
  const auto scaled = [](Tensor x) { return ((x.dim() > 1 ? x.t() : x) * 3.0).sum(); };
  // Three paths: the gradient is summed in place.
  const auto summed = [](Tensor x) { return (x * 2.0 + x * x + x * 3.0).sum(); };
  const auto run = [&](auto loss_of, const Shape& shape, bool keeps, Mode& mode) {
    Tensor x = ones(shape, requires_grad());
    uintptr_t seen = 0;
    Tensor kept;
    x.register_hook(opaque([&](const Tensor& g) {
      seen = memory_of(g);
      if (keeps && !kept.defined()) kept = g;
    }));
    const auto pass = [&] {
      Tensor loss = mode.call([&] { return loss_of(x); });
      mode.backward([&] { loss.backward(); });
    };
    pass();
    const Tensor grad = x.grad();
    std::vector<std::vector<double>> found{values_of(grad)};
    found.push_back({static_cast<double>(grad._version()), memory_of(grad) == seen ? 1.0 : 0.0});
    found.emplace_back(grad.strides().begin(), grad.strides().end());
    pass();  // adds to it
    CHECK(x.grad().is_same(grad));
    found.push_back(values_of(grad));
    found.push_back({static_cast<double>(grad._version())});
    if (keeps) {
      CHECK(values_of(kept) == found[0]);
      found.push_back({static_cast<double>(kept._version())});
      found.emplace_back(kept.strides().begin(), kept.strides().end());
    }
    return found;
  };
  const auto as_in_eager = [&](auto loss_of, const Shape& shape, bool keeps, bool adopted) {
    CAPTURE(shape);
    CAPTURE(keeps);
    Mode eager;
    const auto want = run(loss_of, shape, keeps, eager);
    CHECK(want[1][1] == (adopted ? 1.0 : 0.0));
    in_all_modes({2, 2}, [&](Mode& mode) { CHECK(run(loss_of, shape, keeps, mode) == want); });
  };
  as_in_eager(column, {1, 4}, false, true);
  as_in_eager(scaled, {1, 100}, false, true);
  as_in_eager(scaled, {5, 20}, false, false);
  as_in_eager(summed, {3}, false, true);
  as_in_eager(summed, {40}, false, true);
  as_in_eager(column, {4, 4}, true, false);
  as_in_eager(scaled, {5, 20}, true, false);
  as_in_eager(scaled, {100}, true, false);
}

TEST_CASE("compiled.87 what an opaque hook keeps is its own in a step that is one graph") {
  on_each_backend([](const CompileOptions& options) {
    Tensor x = ones({100}, requires_grad()), view, whole;
    x.register_hook(opaque([&](const Tensor& g) {
      if (whole.defined()) return;
      whole = g;
      view = g.slice(0, 0, 2);
    }));
    auto step = compile(
        [&] {
          (x * 3.0).sum().backward();
          x.mutable_grad().mul_(2.0);
          (x * 3.0).sum().backward();
          return x.grad() + 1.0;
        },
        options);
    CHECK(values_of(step()) == Values(100, 10));
    CHECK(values_of(x.grad()) == Values(100, 9));
    CHECK(values_of(whole) == Values(100, 3));
    CHECK(values_of(view) == Values{3, 3});
    CHECK(view.is_alias_of(whole));
    CHECK(step.stats().graphs == 1);
    // What a traced hook has kept can be read.
    Tensor z = ones({100}, requires_grad()), stash;
    std::vector<double> read;
    z.register_hook([&](const Tensor& g) { stash = g; });
    z.register_hook(opaque([&](const Tensor&) { read = values_of(stash); }));
    auto reading = compile([&] { (z * 3.0).sum().backward(); }, options);
    reading();
    CHECK(read == Values(100, 3));
    CHECK(values_of(z.grad()) == Values(100, 3));
    // A hook that throws has kept what it was shown.
    Tensor y = ones({100}, requires_grad()), seen;
    y.register_hook(opaque([&](const Tensor& g) {
      seen = g;
      throw std::runtime_error("enough");
    }));
    auto failing = compile([&] { (y * 3.0).sum().backward(); }, options);
    CHECK_THROWS(failing());
    CHECK(!y.grad().defined());
    CHECK(values_of(seen) == Values(100, 3));
  });
}

TEST_CASE(
    "compiled.87 an existing grad is added to in place, or replaced by one that requires grad") {
  Tensor preset;
  auto set = [&](Tensor x) { x.set_grad(preset = full({4}, 10.0)); };
  around_pass(set, [&](Tensor x) {
    CHECK(x.grad().is_same(preset));
    CHECK(values_of(preset) == Values{13, 13, 13, 13});
  });
  in_all_modes({}, [&](Mode& mode) {
    Tensor x = ones({4}, requires_grad());
    set(x);
    Tensor loss = mode.call([&] { return (x * x).sum(); });
    mode.backward([&] { loss.backward({}, true, true); });
    CHECK(!x.grad().is_same(preset));
    CHECK(x.grad().requires_grad());
    CHECK(values_of(x.grad()) == Values{12, 12, 12, 12});
    CHECK(values_of(preset) == Values{10, 10, 10, 10});
    x.reset_grad();
  });
}

TEST_CASE("compiled.87 a leaf with gaps has a dense grad") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({2, 8}).slice(1, 0, 8, 2).detach().requires_grad_();
    REQUIRE(!x.is_contiguous());
    Tensor loss = mode.call([&] { return (x * 3.0).sum(); });
    mode.backward([&] { loss.backward(); });
    CHECK(x.grad().is_contiguous());
    CHECK(values_of(x.grad()) == Values(8, 3));
  });
}
