#include <cmath>

#include "grapnel/autograd/gradcheck.h"
#include "grapnel/base/warn.h"
#include "grapnel/nn/functional.h"
#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

Tensor logits() { return tensor({{0.5, -1.0, 2.0}, {1.0, 0.25, -0.5}, {0.0, 3.0, 1.0}}, kFloat64); }

/// log softmax of one row, by definition.
double log_prob(const Tensor& scores, int64_t row, int64_t k) {
  double sum = 0;
  for (int64_t j = 0; j < scores.size(1); ++j) sum += std::exp(scores[row][j].item<double>());
  return scores[row][k].item<double>() - std::log(sum);
}

template <class Fn>
bool differentiable(const Tensor& x, Fn fn) {
  const autograd::CheckedFunction f = [fn](const variable_list& in) {
    return variable_list{fn(in[0])};
  };
  const variable_list in = {x.clone().set_requires_grad(true)};
  return autograd::gradcheck(f, in) && autograd::gradgradcheck(f, in);
}

}  // namespace

TEST_CASE("cross_entropy is the mean of -log softmax at the targets") {
  const Tensor x = logits(), t = tensor({2, 0, 1});
  const double a = -log_prob(x, 0, 2), b = -log_prob(x, 1, 0), c = -log_prob(x, 2, 1);
  CHECK(cross_entropy(x, t).item<double>() == doctest::Approx((a + b + c) / 3).epsilon(1e-14));
  CHECK(cross_entropy(x, t, {}, Reduce::sum).item<double>() ==
        doctest::Approx(a + b + c).epsilon(1e-14));
  CHECK(values(cross_entropy(x, t, {}, Reduce::none))[1] == doctest::Approx(b).epsilon(1e-14));
  CHECK(same_bits(cross_entropy(x, t), nll_loss(log_softmax(x, 1), t)));
  CHECK(cross_entropy(x[0], tensor(2)).item<double>() == doctest::Approx(a).epsilon(1e-14));
}

TEST_CASE("class weights weigh the losses, and the mean divides by the weights used") {
  const Tensor x = logits(), t = tensor({2, 0, 2}), w = tensor({1.0, 5.0, 3.0}, kFloat64);
  const double a = -log_prob(x, 0, 2), b = -log_prob(x, 1, 0), c = -log_prob(x, 2, 2);
  CHECK(cross_entropy(x, t, w).item<double>() ==
        doctest::Approx((3 * a + b + 3 * c) / 7).epsilon(1e-14));
}

TEST_CASE("ignored targets count for nothing, whatever their score") {
  const Tensor x = logits(), t = tensor({2, -100, 1});
  const double a = -log_prob(x, 0, 2), c = -log_prob(x, 2, 1);
  CHECK(cross_entropy(x, t).item<double>() == doctest::Approx((a + c) / 2).epsilon(1e-14));
  CHECK(values(cross_entropy(x, t, {}, Reduce::none))[1] == 0);
  CHECK(cross_entropy(x, tensor({2, 0, 1}), {}, Reduce::mean, 0).item<double>() ==
        doctest::Approx((a + c) / 2).epsilon(1e-14));
  const Tensor impossible = tensor({{-INFINITY, 0.0}, {0.0, 0.0}}, kFloat64);
  CHECK(nll_loss(impossible, tensor({-100, 1}), {}, Reduce::sum).item<double>() == 0);
  const Values g = gradient(x, [&](const Tensor& s) { return cross_entropy(s, t); });
  CHECK(Values(g.begin() + 3, g.begin() + 6) == Values{0, 0, 0});
}

TEST_CASE("label smoothing spreads a part of the aim over all classes") {
  const Tensor x = logits(), t = tensor({2, 0, 1});
  const double s = 0.3;
  double expected = 0;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t k = 0; k < 3; ++k)
      expected -= log_prob(x, i, k) * ((k == t[i].item<int64_t>() ? 1 - s : 0) + s / 3) / 3;
  CHECK(cross_entropy(x, t, {}, Reduce::mean, -100, s).item<double>() ==
        doctest::Approx(expected).epsilon(1e-14));
  const Tensor hot = one_hot(t, 3).to(kFloat64);
  CHECK(cross_entropy(x, hot, {}, Reduce::mean, -100, s).item<double>() ==
        doctest::Approx(expected).epsilon(1e-14));
}

TEST_CASE("a target of the logits' shape holds class probabilities") {
  const Tensor x = logits(), p = softmax(logits() * 0.5, 1), w = tensor({1.0, 5.0, 3.0}, kFloat64);
  double expected = 0, weighted = 0;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t k = 0; k < 3; ++k) {
      expected -= log_prob(x, i, k) * p[i][k].item<double>() / 3;
      weighted -= log_prob(x, i, k) * p[i][k].item<double>() * w[k].item<double>() / 3;
    }
  CHECK(cross_entropy(x, p).item<double>() == doctest::Approx(expected).epsilon(1e-14));
  CHECK(cross_entropy(x, p, w).item<double>() == doctest::Approx(weighted).epsilon(1e-14));
}

TEST_CASE("the classes of images are in dimension 1") {
  const Tensor x = sample_tensor({2, 3, 4, 5}), t = counting({2, 4, 5}, kInt64).remainder(3);
  const Tensor rows = x.permute({0, 2, 3, 1}).reshape({-1, 3});
  CHECK(allclose(cross_entropy(x, t), cross_entropy(rows, t.reshape({-1}))));
  CHECK(cross_entropy(x, t, {}, Reduce::none).shape() == Shape{2, 4, 5});
}

TEST_CASE("mse_loss and l1_loss are means of squares and sizes of differences") {
  const Tensor x = tensor({1.0, 2.0, 4.0}, kFloat64), t = tensor({0.0, 2.0, 1.0}, kFloat64);
  CHECK(mse_loss(x, t).item<double>() == doctest::Approx(10.0 / 3));
  CHECK(mse_loss(x, t, Reduce::sum).item<double>() == 10);
  CHECK(values(l1_loss(x, t, Reduce::none)) == Values{1, 0, 3});
  CHECK(gradient(x, [&](const Tensor& s) { return l1_loss(s, t, Reduce::sum); }) ==
        Values{1, 0, 1});
  CHECK(contains(error_of([&] { mse_loss(x, ones({2}, kFloat64)); }),
                 "mse_loss: shapes [3] and [2] do not broadcast"));
}

TEST_CASE("binary_cross_entropy_with_logits neither overflows nor loses small losses") {
  const Tensor x = tensor({-800.0, 0.0, 2.0, 50.0}, kFloat64),
               t = tensor({0.0, 1.0, 0.25, 1.0}, kFloat64);
  const Values losses = values(binary_cross_entropy_with_logits(x, t, {}, {}, Reduce::none));
  CHECK(losses[0] == 0);
  CHECK(losses[1] == doctest::Approx(std::log(2.0)).epsilon(1e-15));
  CHECK(losses[2] == doctest::Approx(0.75 * 2 + std::log1p(std::exp(-2.0))).epsilon(1e-14));
  CHECK(losses[3] == doctest::Approx(std::exp(-50.0)).epsilon(1e-12));
  const Values weighted = values(binary_cross_entropy_with_logits(
      x, t, tensor({1.0, 2.0, 1.0, 1.0}, kFloat64), tensor({3.0}, kFloat64), Reduce::none));
  CHECK(weighted[1] == doctest::Approx(6 * std::log(2.0)).epsilon(1e-14));
  // At 0 the slope is that of the smooth function, not of its parts.
  CHECK(gradient(tensor({0.0}, kFloat64), [](const Tensor& s) {
          return binary_cross_entropy_with_logits(s, ones({1}, kFloat64));
        }) == Values{-0.5});
}

TEST_CASE("binary_cross_entropy refuses a target of another shape") {
  CHECK(contains(error_of([] { binary_cross_entropy(full({4, 1}, 0.5), ones({4})); }),
                 "binary_cross_entropy: target must have the shape of x, [4, 1], got [4]"));
}

TEST_CASE("a loss of operands of different shapes broadcasts with one warning per line") {
  std::vector<std::string> warnings;
  set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  for (int i = 0; i < 3; ++i) mse_loss(ones({3, 1}), ones({3}));
  CHECK(warnings.size() == 1);
  l1_loss(ones({3, 1}), ones({3}));
  nn::functional::huber_loss(ones({3, 1}), ones({3}));
  nn::functional::smooth_l1_loss(ones({3, 1}), ones({3}));
  mse_loss(ones({3, 1}), ones({3}));
  mse_loss(ones({3}), ones({3}));
  set_warning_handler(nullptr);
  REQUIRE(warnings.size() == 5);
  CHECK(contains(warnings[0], "mse_loss: x has shape [3, 1] and the target [3]"));
  CHECK(contains(warnings[0], "loss_test.cpp:"));
  CHECK(contains(warnings[2], "huber_loss: x has shape [3, 1]"));
}

TEST_CASE("losses can be differentiated twice") {
  const Tensor x = logits(), t = tensor({2, -100, 1}), w = tensor({1.0, 5.0, 3.0}, kFloat64);
  CHECK(differentiable(
      x, [&](const Tensor& s) { return cross_entropy(s, t, w, Reduce::mean, -100, 0.1); }));
  CHECK(differentiable(x, [&](const Tensor& s) { return nll_loss(s, t); }));
  CHECK(differentiable(x, [&](const Tensor& s) { return mse_loss(s, x.detach() * 0.5); }));
  CHECK(differentiable(x, [&](const Tensor& s) {
    return binary_cross_entropy_with_logits(s, sigmoid(x.detach()), {}, w);
  }));
}

TEST_CASE("errors of losses show the shapes") {
  CHECK(contains(error_of([] { nll_loss(ones({2, 3}), tensor({0, 1, 2})); }),
                 "nll_loss: target must have shape [2]"));
  CHECK(contains(error_of([] { nll_loss(ones({2, 3}), tensor({0.0, 1.0})); }),
                 "class numbers must be integers, got f32"));
  CHECK(contains(error_of([] { cross_entropy(ones({2, 3}), tensor({0, 1}), ones({2})); }),
                 "weight must hold one number per class (3), got shape [2]"));
  CHECK(contains(
      error_of([] { cross_entropy(ones({2, 3}), tensor({0, 1}), {}, Reduce::mean, -100, 2.0); }),
      "label_smoothing lies between 0 and 1"));
  CHECK(contains(error_of([] { cross_entropy(ones({2, 3}), tensor({0, 3})); }), "3"));
  CHECK(contains(error_of([] { binary_cross_entropy_with_logits(ones({2}), ones({3})); }),
                 "target must have the logits' shape [2], got [3]"));
}
