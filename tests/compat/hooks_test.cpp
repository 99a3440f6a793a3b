// A LibTorch-style program with hooks on tensors and nodes, removed by number.
#include <doctest/doctest.h>

#include "grapnel/compat/torch.h"

namespace {

struct DoubleGrads : torch::autograd::FunctionPreHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    torch::autograd::variable_list out;
    for (const auto& g : grads) out.push_back(g * 2);
    return out;
  }
};

struct CountCalls : torch::autograd::FunctionPostHook {
  explicit CountCalls(int& count) : count_(count) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++count_;
    return outputs;
  }
  int& count_;
};

}  // namespace

TEST_CASE("a hook's number removes the hook") {
  torch::Tensor v = torch::tensor({0.0, 0.0, 0.0}, torch::requires_grad());
  unsigned h = v.register_hook([](torch::Tensor grad) { return grad * 2; });
  v.backward(torch::tensor({1.0, 2.0, 3.0}));
  CHECK(torch::equal(v.grad(), torch::tensor({2.0, 4.0, 6.0})));
  v.remove_hook(h);
  v.mutable_grad() = torch::Tensor();
  v.backward(torch::tensor({1.0, 2.0, 3.0}));
  CHECK(torch::equal(v.grad(), torch::tensor({1.0, 2.0, 3.0})));
}

TEST_CASE("hooks run in order of registration and may return nothing") {
  std::vector<double> seen;
  auto x = torch::ones({1}, torch::requires_grad());
  auto y = x * 3;
  y.register_hook([&](torch::Tensor g) { seen.push_back(g.item<double>()); });
  y.register_hook([](const torch::Tensor& g) { return g + 1; });
  y.register_hook([&](torch::Tensor g) -> void { seen.push_back(g.item<double>()); });
  (y * 5).sum().backward();
  CHECK(seen == std::vector{5.0, 6.0});
  CHECK(x.grad().item<float>() == 18);
}

TEST_CASE("retain_grad keeps the gradient of an intermediate result, after its hooks") {
  auto x = torch::tensor({1.0, 2.0}, torch::requires_grad());
  auto y = x * x;
  y.register_hook([](torch::Tensor g) { return g * 10; });
  y.retain_grad();
  CHECK(y.retains_grad());
  y.sum().backward();
  CHECK(torch::equal(y.grad(), torch::tensor({10.0, 10.0})));
  CHECK(torch::equal(x.grad(), torch::tensor({20.0, 40.0})));
}

TEST_CASE("nodes take hook objects before and after they run") {
  int calls = 0;
  auto x = torch::tensor({2.0}, torch::requires_grad());
  auto y = x.exp();
  y.grad_fn()->add_pre_hook(std::make_unique<DoubleGrads>());
  y.grad_fn()->add_post_hook(std::make_unique<CountCalls>(calls));
  y.backward(torch::ones({1}), /*retain_graph=*/true);
  CHECK(calls == 1);
  CHECK(torch::allclose(x.grad(), 2 * torch::exp(x.detach())));
}

TEST_CASE("an exception thrown by a hook reaches the caller, and the next pass works") {
  auto x = torch::ones({2}, torch::requires_grad());
  unsigned h =
      x.register_hook([](torch::Tensor) -> torch::Tensor { throw std::runtime_error("stop"); });
  CHECK_THROWS_WITH_AS((x * 2).sum().backward(), "stop", std::runtime_error);
  x.remove_hook(h);
  x.mutable_grad().reset();
  (x * 2).sum().backward();
  CHECK(torch::equal(x.grad(), torch::tensor({2.0, 2.0})));
}
