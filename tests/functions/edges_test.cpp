/// Functions at the edges of what they are given: narrow types, numbers that no size can have, NaN.
#include <cmath>
#include <limits>

#include "grapnel/grapnel.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
}  // namespace

TEST_CASE("bernoulli: small probabilities are met in narrow types, too") {
  manual_seed(3);
  const Tensor p = full({200'000}, 1.0 / 1024, kBFloat16);
  const double share = bernoulli(p).to(kFloat64).mean().item<double>();
  CHECK(share == doctest::Approx(1.0 / 1024).epsilon(0.3));
}

TEST_CASE("quantile and histc count in more than a narrow type holds") {
  const Tensor row = arange(0, 4096, 1, kFloat32);
  CHECK(quantile(row.to(kBFloat16), 0.75).item<double>() ==
        quantile(row.to(kBFloat16).to(kFloat32), 0.75).to(kBFloat16).item<double>());
  CHECK(quantile(ones({100'000}, kFloat16), 0.5).item<double>() == 1);
  CHECK(same_bits(histc(zeros({300}, kBFloat16), 4, -1, 1), tensor({0.0, 0.0, 300.0, 0.0}).to(kBFloat16)));
}

TEST_CASE("gradients of powers of zero and of the angle at the origin are PyTorch's") {
  const Tensor a = zeros({3}, kFloat64).requires_grad_(),
               b = tensor({-1.0, 0.0, 2.0}, kFloat64).requires_grad_();
  pow(a, b).sum().backward();
  CHECK(b.grad().equal(tensor({-INFINITY, 0.0, 0.0}, kFloat64)));
  const Tensor y = zeros({1}).requires_grad_(), x = zeros({1}).requires_grad_();
  atan2(y, x).backward();
  CHECK(y.grad().item<double>() == 0);
  CHECK(x.grad().item<double>() == 0);
}

TEST_CASE("softshrink of NaN is NaN") {
  const Tensor y = softshrink(tensor({NAN, 0.2, -2.0, 2.0}, kFloat64), 0.5);
  CHECK(std::isnan(y[0].item<double>()));
  CHECK(y.slice(0, 1).equal(tensor({0.0, -1.5, 1.5}, kFloat64)));
}

TEST_CASE("resize_: an expanded tensor can get other sizes") {
  Tensor x = full({1}, 3.0).expand({10});
  x.resize_({5});
  CHECK(x.equal(full({5}, 3.0)));
}

TEST_CASE("numbers that no size can have are errors, and nothing wraps around") {
  const Tensor x = arange(0, 4, 1, kFloat32), image = ones({1, 1, 4, 4});
  CHECK_THROWS_AS(bincount(full({1}, kMost, kInt64)), Error);
  CHECK_THROWS_AS(histc(x, kMost), Error);
  CHECK_THROWS_AS(diag_embed(x, kLeast), Error);
  CHECK_THROWS_AS(diag_embed(x, kMost), Error);
  for (const int64_t a : {kLeast, kLeast + 1, int64_t{-5}, kMost})
    for (const int64_t b : {kLeast, int64_t{0}, kMost}) CHECK_THROWS_AS(pad(x, {a, b}), Error);
  CHECK(unfold(x, 0, 2, kMost).equal(tensor({{0.0f, 1.0f}})));
}

TEST_CASE("interpolate: any scale stays inside the image") {
  const Tensor image = arange(0, 16, 1, kFloat32).view({1, 1, 4, 4});
  const double tiny[] = {1e-300, 1e-300};
  CHECK(interpolate(image, {2, 2}, Interpolation::nearest, false, tiny).flatten().equal(
      tensor({0.0f, 3.0f, 12.0f, 15.0f})));
  CHECK(isfinite(interpolate(image, {2, 2}, Interpolation::bilinear, false, tiny)).all().item<bool>());
}
