// LibTorch-style programs that differentiate gradients, and ask for gradients of some inputs only.
#include <doctest/doctest.h>

#include "grapnel/compat/torch.h"

TEST_CASE("derivatives of a cube down to zero") {
  auto x = torch::tensor(2.0, torch::dtype(torch::kFloat64).requires_grad(true));
  auto y = x * x * x;
  std::vector<double> derivatives;
  for (int order = 1; order <= 3; ++order) {
    y = torch::autograd::grad({y}, {x}, /*grad_outputs=*/{}, /*retain_graph=*/torch::nullopt,
                              /*create_graph=*/true)[0];
    derivatives.push_back(y.item<double>());
  }
  CHECK(derivatives == std::vector{12.0, 12.0, 6.0});
}

TEST_CASE("a penalty on the norm of a gradient is trained through") {
  torch::manual_seed(3);
  auto w = torch::randn({4, 3}, torch::dtype(torch::kFloat64).requires_grad(true));
  auto x = torch::randn({8, 3}, torch::dtype(torch::kFloat64).requires_grad(true));

  auto penalty = [&] {
    auto out = torch::tanh(x.mm(w.t())).sum();
    auto g = torch::autograd::grad({out}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return torch::pow(g.norm(2, {1}) - 1, 2).mean();
  };
  auto before = penalty();
  before.backward();
  REQUIRE(w.grad().defined());
  {
    // A small step against the gradient lowers the penalty by about its squared norm.
    torch::NoGradGuard no_grad;
    w -= 1e-4 * w.grad();
  }
  const double expected = before.item<double>() - 1e-4 * w.grad().pow(2).sum().item<double>();
  CHECK(penalty().item<double>() == doctest::Approx(expected).epsilon(1e-6));
}

TEST_CASE("create_graph in backward leaves gradients that can be differentiated") {
  auto x = torch::tensor({1.0, 2.0}, torch::dtype(torch::kFloat64).requires_grad(true));
  (x * x * x).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  CHECK(x.grad().requires_grad());
  auto second = torch::autograd::grad({x.grad().sum()}, {x})[0];
  CHECK(torch::equal(second, torch::tensor({6.0, 12.0}, torch::kFloat64)));
  x.mutable_grad().reset();
}

TEST_CASE("unused inputs are an error unless allowed, and then undefined") {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = torch::ones({2}, torch::requires_grad());
  CHECK_THROWS_AS(torch::autograd::grad({(x * 2).sum()}, {x, y}), c10::Error);
  auto grads = torch::autograd::grad({(x * 2).sum()}, {x, y}, {}, torch::nullopt, false,
                                     /*allow_unused=*/true);
  CHECK(torch::equal(grads[0], torch::full({2}, 2.0)));
  CHECK_FALSE(grads[1].defined());
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("backward of several roots adds up") {
  auto x = torch::ones({2}, torch::requires_grad());
  auto a = x * 2, b = x * 3;
  torch::autograd::backward({a, b}, {torch::ones({2}), torch::tensor({1.0, 10.0})});
  CHECK(torch::equal(x.grad(), torch::tensor({5.0, 32.0})));
}

TEST_CASE("a graph that was used up says so") {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = (x * x).sum();
  y.backward();
  try {
    y.backward();
    FAIL("the second pass did not throw");
  } catch (const c10::Error& e) {
    CHECK(std::string(e.what()).find("retain_graph") != std::string::npos);
  }
}
