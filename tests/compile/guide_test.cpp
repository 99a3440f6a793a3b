/// The examples of docs/hooks.md, which tests/readme compares with this file, block by block.
#include <iostream>
#include <sstream>

#include "tests/compile/modes.h"

using namespace grapnel;

namespace {

/// What an example prints goes here.
struct Printed {
  std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  ~Printed() { std::cout.rdbuf(before); }
};

}  // namespace

TEST_CASE("hooks guide: a first hook, and its handle") {
  const Printed printed;
  // guide
  Tensor w = tensor({1.0, 2.0}, requires_grad());
  HookHandle clip = w.register_hook([](const Tensor& grad) { return grad.clamp(-1, 1); }, {"clip"});

  (w * w * w).sum().backward();   // the gradient is {3, 12}
  std::cout << w.grad() << '\n';  // {1, 1}

  clip.remove();  // may be called any number of times
  {
    ScopedHook off = w.register_hook([](const Tensor& grad) { return zeros_like(grad); });
  }  // removed here, also if an exception leaves the block
  for (const HookInfo& h : hooks_of(w))
    std::cout << h.name << " at " << h.site << '\n';  // none left
  // end
  CHECK(values_of(w.grad()) == std::vector<double>{1, 1});
  CHECK(hooks_of(w).empty());
}

TEST_CASE("hooks guide: every kind, in its order") {
  // guide
  std::vector<std::string> order;
  auto says = [&order](std::string what) {
    return [&order, what](auto&&...) { order.push_back(what); };
  };

  Tensor x = ones({2}, requires_grad());
  Tensor y = x * 3;
  y.grad_fn()->register_hook(says("y node post"));
  y.grad_fn()->register_prehook(says("y node pre"));
  y.retain_grad();
  y.register_hook(says("y tensor"));
  x.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    order.push_back(leaf.grad().defined() ? "x accumulated" : "never");
  });
  x.register_hook([&](const Tensor&) {
    order.push_back("x tensor");
    autograd::queue_callback(says("end of pass"));
  });

  y.sum().backward();
  // order: y tensor, y node pre, y node post, x tensor, x accumulated, end of pass
  // end
  CHECK(order == std::vector<std::string>{"y tensor", "y node pre", "y node post", "x tensor",
                                          "x accumulated", "end of pass"});
  CHECK(y.grad().defined());
}

TEST_CASE("hooks guide: the optimiser inside the backward pass") {
  // guide
  auto net = nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 1));
  for (const Tensor& p : net->parameters())
    p.register_post_accumulate_grad_hook([](Tensor leaf) {
      NoGradGuard no_grad;
      leaf.sub_(leaf.grad() * 0.01);  // step as soon as this gradient is there
      leaf.reset_grad();              // and give its memory back
    });
  net->forward(ones({2, 4})).sum().backward();
  // end
  for (const Tensor& p : net->parameters()) CHECK(!p.grad().defined());
}

TEST_CASE("hooks guide: several gradients at once, and saved tensors") {
  // guide
  Tensor a = ones({3}, requires_grad()), b = ones({3}, requires_grad());
  Tensor norm;
  register_multi_grad_hook({a, b}, [&](const variable_list& grads) {
    // Once per pass, when both are there.
    norm = (grads[0].square().sum() + grads[1].square().sum()).sqrt();
  });

  int packed = 0;
  Tensor loss;
  {
    autograd::SavedTensorHooks half([&](const Tensor& t) { return ++packed, t.to(kBFloat16); },
                                    [](const Tensor& t) { return t.to(kFloat32); });
    loss = (a * b).sum();  // keeps a and b, in half the memory
  }
  loss.backward();
  // end
  CHECK(packed == 2);
  CHECK(norm.item<double>() == doctest::Approx(2.4494897));
}

TEST_CASE("hooks guide: hooks of modules and optimisers") {
  const Printed printed;
  // guide
  nn::Linear layer(3, 2);
  layer->register_forward_hook(
      [](nn::Module&, const nn::Args&, const Tensor& result) { return result * 2; },
      {.name = "double"});
  layer->register_full_backward_hook(
      [](nn::Module& m, const variable_list& grad_input, const variable_list& grad_output) {
        std::cout << m.name() << ": " << grad_output[0].shape() << " in, " << grad_input[0].shape()
                  << " out\n";
      });
  layer(ones({4, 3}, requires_grad())).sum().backward();  // layer->forward(x) would call no hooks

  optim::SGD optimizer(layer->parameters(), 0.1);
  int steps = 0;
  optimizer.register_step_post_hook([&](optim::Optimizer&) { ++steps; });
  optimizer.step();
  // end
  CHECK(printed.text.str().ends_with(": [4, 2] in, [4, 3] out\n"));
  CHECK(steps == 1);
  CHECK(layer->bias.grad().equal(full({2}, 8.0)));
}

TEST_CASE("hooks guide: hooks in a compiled step") {
  reset_compile_cache();
  // guide
  Tensor w = ones({4}, requires_grad());
  int calls = 0;
  w.register_hook([&](const Tensor& grad) {
    ++calls;                         // plain C++ happens for real, every time
    return grad.clamp(-1, 1) * 0.5;  // arithmetic becomes part of the graph
  });

  auto step = compile(
      [&](Tensor x) {
        Tensor loss = (w * x).square().sum();
        loss.backward();
        return loss.detach();
      },
      {.fullgraph = true});
  for (int i = 0; i < 10; ++i) step(full({4}, i * 1.0));

  CompileStats s = step.stats();
  // 2 graphs (grad() undefined, then defined), 10 calls of the hook, no break
  // end
  CHECK(calls == 10);
  CHECK(s.graphs == 2);
  CHECK(s.breaks == 0);
}

TEST_CASE("hooks guide: a declared hook") {
  reset_compile_cache();
  // guide
  struct Scale {
    std::shared_ptr<Lifted> factor;  // read anew in every pass, never part of a key
    double limit = 10;               // a constant: another value is another hook
    void compiled_args(CompiledNodeArgs& args) const {
      args.declare("scale", limit);
      args.lift(*factor);
    }
    Tensor operator()(const Tensor& grad) const { return (grad * *factor).clamp(-limit, limit); }
  };
  Tensor w = ones({4}, requires_grad());
  auto factor = std::make_shared<Lifted>(1.0);
  w.register_hook(Scale{factor});

  CompiledBackward scope;
  for (int i = 0; i < 100; ++i) {
    *factor = 0.01 * i;
    (w * 2).sum().backward();
  }
  CompileStats s = scope.stats();  // the hook was called once and skipped 99 times
  // end
  CHECK(s.skipped_hooks == 99);
  CHECK(s.graphs <= 2);
}

TEST_CASE("hooks guide: an opaque hook") {
  const Printed printed;
  // guide
  Tensor w = ones({4}, requires_grad());
  w.register_hook(opaque([](const Tensor& grad) {
    // Reading is fine here: the graph is running.
    std::cout << "norm " << grad.norm().item<double>() << '\n';
  }));

  CompiledBackward scope({.fullgraph = true});
  (w * 2).sum().backward();  // prints "norm 4", breaks nothing
  // end
  CHECK(printed.text.str() == "norm 4\n");
  CHECK(scope.stats().breaks == 0);
}

TEST_CASE("hooks guide: what a hook does, as a graph") {
  const Printed printed;
  // guide
  Tensor w = ones({4}, requires_grad());
  w.register_hook([](const Tensor& grad) { return grad * 2; }, {"double"});
  Graph g = trace([&](Tensor x) { return autograd::grad({(w * x).sum()}, {w})[0]; }, {ones({4})});
  std::cout << g;  // the line of the hook ends in: # in tensor hook 'double' registered at ...
  // end
  const std::string text = g.str();
  CAPTURE(text);
  CHECK(text.find("in tensor hook 'double' registered at") != std::string::npos);
  CHECK(g.dot().find("subgraph cluster_hook") != std::string::npos);
}
