/// Backends of the user's own: asked once per graph, and part of the key.
#include <thread>

#include "tests/autograd/vectors.h"
#include "tests/compile/modes.h"

using namespace grapnel;

namespace {

/// Counts what it is asked, and answers with `answer`.
struct Asked final : GraphCompiler {
  std::function<Runner(const Graph&, const std::vector<Tensor>&)> answer;
  std::vector<std::string> texts;
  explicit Asked(Runner always)
      : answer([always](const Graph&, const std::vector<Tensor>&) { return always; }) {}
  explicit Asked(decltype(answer) f) : answer(std::move(f)) {}
  Runner compile(const Graph& graph, const std::vector<Tensor>& inputs) override {
    texts.push_back(graph.str());
    CHECK(inputs.size() == graph.inputs().size());
    return answer(graph, inputs);
  }
};

CompileOptions with(std::shared_ptr<GraphCompiler> compiler) {
  CompileOptions options;
  options.fullgraph = true;
  options.compiler = std::move(compiler);
  return options;
}

/// Answers that all run the graph that they are asked about.
std::vector<std::shared_ptr<Asked>> all_answers() {
  return {std::make_shared<Asked>(Runner(Backend::eager)),
          std::make_shared<Asked>(Runner(Backend::aot_eager)),
          std::make_shared<Asked>(Runner(Backend::fused)),
          std::make_shared<Asked>(
              [](const Graph& graph, const std::vector<Tensor>&) { return Runner(graph); }),
          std::make_shared<Asked>([](const Graph& graph, const std::vector<Tensor>&) -> Runner {
            return [graph](const std::vector<Tensor>& x) { return graph.run(x); };
          })};
}

}  // namespace

TEST_CASE(
    "a compiler of the user's own is asked once per graph, and all its answers give eager's bits") {
  for (const auto& compiler : all_answers()) {
    reset_compile_cache();
    auto f = [](const Tensor& x, const Tensor& w) {
      const Tensor y = (x.matmul(w) * 2 + 1).tanh();
      return std::vector<Tensor>{y, y.t(), y.sum(), x};
    };
    auto compiled = compile(f, with(compiler));
    manual_seed(1);
    const Tensor w = randn({4, 3});
    for (int i = 0; i < 3; ++i) {
      const Tensor x = randn({5, 4});
      const auto want = f(x, w), got = compiled(x, w);
      for (size_t k = 0; k < want.size(); ++k) CHECK(got[k].equal(want[k]));
    }
    CHECK(compiler->texts.size() == 1);
    CHECK(compiler->texts[0].find("matmul") != std::string::npos);
    CHECK(compiled.stats().graphs == 1);
    CHECK(compiled.stats().hits == 2);
  }
}

TEST_CASE("a graph that a function runs has the numbers and sizes of the call, not of the key") {
  for (const auto& compiler : all_answers()) {
    reset_compile_cache();
    auto f = compile([](const Tensor& x, double k, int64_t at) { return x.narrow(0, at, 1) * k; },
                     with(compiler));
    for (const double k : {2.0, 3.0, 2.0})
      for (const int64_t at : {0, 1})
        for (const int64_t size : {2, 3})
          CHECK(f(arange(0, size).to(kFloat32), k, at).item<double>() ==
                k * static_cast<double>(at));
    CHECK(f.stats().graphs == 1);
  }
}

TEST_CASE("a step with hooks under a compiler of the user's own leaves what eager mode leaves") {
  const auto train = [](const CompileOptions* options) {
    manual_seed(3);
    Tensor w = randn({4, 2}).requires_grad_();
    int calls = 0;
    w.register_hook([&](const Tensor& g) { return ++calls, g.clamp(-1, 1); });
    optim::Adam optimizer({w}, 0.1);
    auto body = [&](const Tensor& x) {
      optimizer.zero_grad();
      const Tensor loss = (x.matmul(w) - 1).square().mean();
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) {
      const Tensor x = randn({3, 4});
      losses.push_back((options ? compile(body, *options)(x) : body(x)).item<double>());
    }
    losses.push_back(w._version());
    for (const double v : values_of(w)) losses.push_back(v);
    CHECK(calls == 4);
    return losses;
  };
  const auto want = train(nullptr);
  for (const auto& compiler : all_answers()) {
    reset_compile_cache();
    const CompileOptions options = with(compiler);
    CHECK(train(&options) == want);
  }
}

TEST_CASE("a backward graph is handed to the compiler of its scope, with its hooks named") {
  reset_compile_cache();
  const auto compiler = std::make_shared<Asked>(Runner(Backend::fused));
  const Tensor x = ones({2}, requires_grad());
  x.register_hook([](const Tensor& g) { return g * 3; }, "triple");
  const Tensor loss = (x * x).sum();
  CompiledBackward scope(with(compiler));
  loss.backward();
  CHECK(values_of(x.grad()) == std::vector{6.0, 6.0});
  REQUIRE(compiler->texts.size() == 1);
  CHECK(compiler->texts[0].find("'triple'") != std::string::npos);
}

TEST_CASE("functions with one compiler share its graphs, and functions with two do not") {
  reset_compile_cache();
  const auto a = std::make_shared<Asked>(Runner(Backend::fused)),
             b = std::make_shared<Asked>(Runner(Backend::fused));
  const auto f = [](const Tensor& x) { return x + 1; };
  for (int i = 0; i < 2; ++i) {
    compile(f, with(a))(ones({2}));
    compile(f, with(b))(ones({2}));
    compile(f)(ones({2}));
  }
  CHECK(a->texts.size() == 1);
  CHECK(b->texts.size() == 1);
}

TEST_CASE("a graph that calls functions of the program is run by a backend only") {
  for (const auto& compiler : all_answers()) {
    reset_compile_cache();
    int sum = 0;
    auto f = compile(
        [&](const Tensor& x, int k) {
          return invoke([&sum, k](const Tensor& v) { return sum += k, v * k; }, x + 1);
        },
        with(compiler));
    if (!compiler->answer(Graph(), {}).backend()) {
      CHECK_ERROR(f(ones({1}), 1), "only a backend can run it");
      CHECK(sum == 0);
      continue;
    }
    for (const int k : {1, 2, 3}) CHECK(f(ones({1}), k).item<double>() == 2 * k);
    CHECK(sum == 6);
    CHECK(compiler->texts.size() == 1);
  }
}

TEST_CASE("random numbers are drawn as in eager mode under a compiler of the user's own") {
  for (const auto& compiler : all_answers()) {
    reset_compile_cache();
    auto f = [](const Tensor& x) { return x + rand({3}); };
    auto compiled = compile(f, with(compiler));
    for (int i = 0; i < 3; ++i) {
      manual_seed(7 + static_cast<uint64_t>(i));
      const Tensor want = f(ones({3}));
      manual_seed(7 + static_cast<uint64_t>(i));
      CHECK(compiled(ones({3})).equal(want));
    }
  }
}

TEST_CASE("memory made with empty and returned is there under a compiler of the user's own") {
  for (const auto& compiler : all_answers()) {
    reset_compile_cache();
    auto f = compile(
        [](const Tensor& x) {
          const Tensor out = empty({2, 2});
          out.select(0, 0).copy_(x);
          out.select(0, 1).copy_(x * 2);
          return out;
        },
        with(compiler));
    CHECK(values_of(f(ones({2}))) == std::vector{1.0, 1.0, 2.0, 2.0});
  }
}

TEST_CASE("what a compiler throws reaches the caller, and nothing of the step has happened") {
  reset_compile_cache();
  struct Mine {};
  bool refuse = true;
  const auto compiler =
      std::make_shared<Asked>([&](const Graph&, const std::vector<Tensor>&) -> Runner {
        if (refuse) throw Mine();
        return Backend::fused;
      });
  Tensor total = zeros({2});
  auto f = compile([&](const Tensor& x) { total.add_(x); }, with(compiler));
  CHECK_THROWS_AS(f(ones({2})), Mine);
  CHECK(values_of(total) == std::vector{0.0, 0.0});
  CHECK(total._version() == 0);
  refuse = false;
  f(ones({2}));
  CHECK(values_of(total) == std::vector{1.0, 1.0});
  CHECK(compiler->texts.size() == 2);
}

TEST_CASE("what a function returns has to look like the outputs of the graph") {
  reset_compile_cache();
  const auto wrong = [](std::vector<Tensor> out) {
    return std::make_shared<Asked>([out](const Graph&, const std::vector<Tensor>&) -> Runner {
      return [out](const std::vector<Tensor>&) { return out; };
    });
  };
  const auto f = [](const Tensor& x) { return x + 1; };
  CHECK_ERROR(compile(f, with(wrong({})))(ones({2})), "returned 0 tensors, and the graph has 1");
  CHECK_ERROR(compile(f, with(wrong({ones({3})})))(ones({2})), "output 0 is f32[3]");
  CHECK_ERROR(compile(f, with(wrong({Tensor()})))(ones({2})), "output 0 is undefined");
}

TEST_CASE("a compiler that calls what it compiles itself is refused") {
  reset_compile_cache();
  std::function<Tensor(const Tensor&)> again;
  const auto compiler =
      std::make_shared<Asked>([&](const Graph&, const std::vector<Tensor>&) -> Runner {
        again(ones({2}));
        return Backend::fused;
      });
  auto f = compile([](const Tensor& x) { return x + 1; }, with(compiler));
  again = f;
  CHECK_ERROR(f(ones({2})), "a function that it compiles itself");
}

TEST_CASE("threads that want one graph wait for one question") {
  reset_compile_cache();
  const auto compiler = std::make_shared<Asked>([](const Graph&, const std::vector<Tensor>&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return Runner(Backend::fused);
  });
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      auto f = compile([](const Tensor& x) { return x * 3; }, with(compiler));
      right += f(ones({2})).sum().item<double>() == 6;
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 4);
  CHECK(compiler->texts.size() == 1);
}
