// LibTorch-style programs that keep their parameters in plain tensors and update them under
// NoGradGuard.
#include <doctest/doctest.h>

#include "grapnel/compat/torch.h"

TEST_CASE("a line is fitted by gradient descent written out") {
  torch::manual_seed(0);
  auto x = torch::linspace(-1, 1, 64).unsqueeze(1);
  auto y = 3 * x + 0.5;
  auto w = torch::zeros({1, 1}, torch::requires_grad());
  auto b = torch::zeros({1}, torch::requires_grad());

  for (int step = 0; step < 200; ++step) {
    auto loss = torch::mse_loss(torch::matmul(x, w) + b, y);
    loss.backward();
    torch::NoGradGuard no_grad;
    for (auto& p : {w, b}) {
      p.sub_(0.3 * p.grad());
      p.mutable_grad().zero_();
    }
  }
  CHECK(w.item<float>() == doctest::Approx(3).epsilon(1e-3));
  CHECK(b.item<float>() == doctest::Approx(0.5).epsilon(1e-3));
}

TEST_CASE("a two-layer network learns XOR") {
  torch::manual_seed(7);
  const auto options = torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCPU);
  auto x = torch::tensor({{0.0, 0.0}, {0.0, 1.0}, {1.0, 0.0}, {1.0, 1.0}}, options);
  auto y = torch::tensor({{0.0}, {1.0}, {1.0}, {0.0}}, options);

  std::vector<torch::Tensor> params = {torch::randn({2, 8}, options), torch::zeros({8}, options),
                                       torch::randn({8, 1}, options), torch::zeros({1}, options)};
  for (auto& p : params) p.set_requires_grad(true);
  auto forward = [&] {
    return torch::addmm(params[3], torch::tanh(torch::addmm(params[1], x, params[0])), params[2]);
  };

  for (int step = 0; step < 800; ++step) {
    auto loss = torch::binary_cross_entropy_with_logits(forward(), y);
    auto grads = torch::autograd::grad({loss}, params);
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < params.size(); ++i) params[i] -= 0.5 * grads[i];
  }
  torch::NoGradGuard no_grad;
  CHECK(torch::equal((forward() > 0).to(torch::kFloat32), y));
}

TEST_CASE("an in-place change of a leaf outside NoGradGuard is refused") {
  auto w = torch::ones({2}, torch::requires_grad());
  CHECK_THROWS_AS(w -= 1.0, c10::Error);
  torch::AutoGradMode off(false);
  w -= 1.0;
  CHECK(torch::equal(w, torch::zeros({2})));
  CHECK(w.requires_grad());
}
