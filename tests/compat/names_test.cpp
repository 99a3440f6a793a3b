// Names under at, c10 and torch, modes, errors, and a program that says `using namespace torch`.
#include <doctest/doctest.h>

#include <type_traits>

#include "grapnel/compat/torch.h"

namespace {

namespace program {

// Everything below is found through this line only.
using namespace torch;

double train() {
  manual_seed(1);
  nn::Linear layer(1, 1);
  optim::SGD optimizer(layer->parameters(), /*lr=*/0.5);
  Tensor x = linspace(-1, 1, 16).unsqueeze(1);
  for (int i = 0; i < 50; ++i) {
    optimizer.zero_grad();
    mse_loss(layer(x), 2 * x).backward();
    optimizer.step();
  }
  return layer->weight.item<double>();
}

}  // namespace program

}  // namespace

TEST_CASE("the three namespaces share their types") {
  static_assert(std::is_same_v<torch::Tensor, at::Tensor> &&
                std::is_same_v<torch::Tensor, torch::autograd::Variable>);
  static_assert(std::is_same_v<c10::Error, grapnel::Error> &&
                std::is_same_v<c10::optional<int>, std::optional<int>>);
  static_assert(std::is_same_v<at::IntArrayRef, c10::ArrayRef<int64_t>> &&
                std::is_same_v<at::Half, c10::Half>);
  static_assert(std::is_same_v<torch::autograd::tensor_list, torch::autograd::variable_list>);
  static_assert(torch::kF32 == torch::kFloat32 && torch::kDouble == at::kDouble);
  at::Tensor x = at::ones({2}, at::kBFloat16);
  CHECK(x.scalar_type() == torch::kBFloat16);
  CHECK(at::add(x, x, 2).to(at::kFloat).sum().item<float>() == 6);
  CHECK(torch::t(torch::ones({2, 3})).sizes() == torch::IntArrayRef({3, 2}));
}

TEST_CASE("a program may use namespace torch as a whole") {
  CHECK(program::train() == doctest::Approx(2).epsilon(1e-3));
}

TEST_CASE("a device chosen by what is available is the CPU, and using CUDA is an error") {
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  CHECK(torch::ones({1}, torch::device(device)).to(device).device().is_cpu());
  CHECK_THROWS_AS(torch::ones({1}, torch::device(torch::kCUDA)), c10::Error);
  CHECK_THROWS_AS(torch::ones({1}).to(torch::kCUDA), c10::Error);
}

TEST_CASE("modes switch recording on and off") {
  auto x = torch::ones({2}, torch::requires_grad());
  {
    torch::NoGradGuard no_grad;
    CHECK_FALSE((x * 2).requires_grad());
    torch::AutoGradMode on(true);
    CHECK((x * 2).requires_grad());
  }
  {
    c10::InferenceMode guard;
    CHECK(torch::InferenceMode::is_enabled());
    auto y = x * 2;
    CHECK(y.is_inference());
    CHECK_FALSE(y.requires_grad());
  }
  CHECK_FALSE(torch::InferenceMode::is_enabled());
  CHECK((x * 2).requires_grad());
}

TEST_CASE("checks throw what LibTorch programs catch") {
  const int n = 3;
  TORCH_CHECK(n == 3, "not thrown");
  try {
    TORCH_CHECK(n > 5, "n is ", n, ", which is too small");
    FAIL("not thrown");
  } catch (const c10::Error& e) {
    CHECK(std::string(e.what()) == "n is 3, which is too small");
  }
  CHECK_THROWS_WITH_AS([&] { TORCH_CHECK(n > 5); }(), "Expected n > 5 to be true, but got false.",
                       c10::Error);
  CHECK_THROWS_AS(torch::matmul(torch::ones({2, 3}), torch::ones({2, 3})), c10::Error);
}

TEST_CASE("anomaly mode names the operation whose gradient is NaN") {
  torch::autograd::DetectAnomalyGuard guard;
  CHECK(torch::autograd::AnomalyMode::is_enabled());
  auto x = torch::zeros({1}, torch::requires_grad());
  CHECK_THROWS_AS((x.sqrt() * 0).sum().backward(), c10::Error);
}

// Later LibTorch has it; the one that tools/compat_with_libtorch finds may not.
TEST_CASE("the rate falls when a metric has stopped to improve") {
  auto w = torch::zeros({1}, torch::requires_grad());
  torch::optim::SGD optimizer({w}, 1.0);
  using Plateau = torch::optim::ReduceLROnPlateauScheduler;
  Plateau schedule(optimizer, Plateau::min, 0.5, /*patience=*/1);
  const auto rate_after = [&](float metric) {
    schedule.step(metric);
    return optimizer.param_groups()[0].options().get_lr();
  };
  CHECK(rate_after(3) == 1);
  CHECK(rate_after(3) == 1);
  CHECK(rate_after(3) == 0.5);
  CHECK(rate_after(2) == 0.5);
  CHECK_THROWS_AS(Plateau(optimizer, Plateau::min, 0.5, 1, 1e-4, Plateau::rel, 0, {0.1F, 0.2F}),
                  c10::Error);
}
