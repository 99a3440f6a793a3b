#include <cmath>

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/gradcheck.h"
#include "grapnel/base/thread_pool.h"
#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

/// Attention by definition for one head, in double. sees(i, j) and bias(i, j) say what query i sees
/// of key j.
template <class Sees>
Values naive(const Tensor& q, const Tensor& k, const Tensor& v, double scale, Sees sees) {
  const Values qs = values(q), ks = values(k), vs = values(v);
  const auto l = static_cast<size_t>(q.size(0)), e = static_cast<size_t>(q.size(1)),
             s = static_cast<size_t>(k.size(0)), d = static_cast<size_t>(v.size(1));
  Values out(l * d);
  for (size_t i = 0; i < l; ++i) {
    Values weights(s);
    double sum = 0;
    for (size_t j = 0; j < s; ++j) {
      double score = 0;
      for (size_t c = 0; c < e; ++c) score += qs[i * e + c] * ks[j * e + c];
      weights[j] = sees(i, j) ? std::exp(score * scale) : 0;
      sum += weights[j];
    }
    for (size_t j = 0; j < s; ++j)
      for (size_t c = 0; c < d; ++c)
        out[i * d + c] += sum > 0 ? weights[j] / sum * vs[j * d + c] : 0;
  }
  return out;
}

void check_close(const Values& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-12).scale(1));
}

const Tensor& q() {
  static const Tensor t = sample_tensor({4, 3}, -1, 1);
  return t;
}
const Tensor& k() {
  static const Tensor t = sample_tensor({5, 3}, -1, 1.5);
  return t;
}
const Tensor& v() {
  static const Tensor t = sample_tensor({5, 2});
  return t;
}

}  // namespace

TEST_CASE("attention agrees with the definition, with and without a scale") {
  auto everything = [](size_t, size_t) { return true; };
  check_close(values(scaled_dot_product_attention(q(), k(), v())),
              naive(q(), k(), v(), 1 / std::sqrt(3.0), everything));
  check_close(values(scaled_dot_product_attention(q(), k(), v(), {}, 0, false, 0.25)),
              naive(q(), k(), v(), 0.25, everything));
}

TEST_CASE("causal attention sees nothing of the future") {
  check_close(values(scaled_dot_product_attention(q(), k(), v(), {}, 0, true)),
              naive(q(), k(), v(), 1 / std::sqrt(3.0), [](size_t i, size_t j) { return j <= i; }));
}

TEST_CASE("a bool mask says what is seen, a floating one is added to the scores") {
  const Tensor seen = sample_tensor({4, 5}) > 0;
  const Values mask = values(seen);
  const Values expected = naive(q(), k(), v(), 1 / std::sqrt(3.0),
                                [&](size_t i, size_t j) { return mask[i * 5 + j] != 0; });
  check_close(values(scaled_dot_product_attention(q(), k(), v(), seen)), expected);
  const Tensor added = where(seen, zeros({}, kFloat64), -INFINITY);
  check_close(values(scaled_dot_product_attention(q(), k(), v(), added)), expected);
}

TEST_CASE("a query that sees nothing gets zeros, and so do its gradients") {
  const Tensor seen = ones({4, 5}, kBool);
  seen[1].fill_(false);
  const Tensor x = q().clone().set_requires_grad(true);
  const Tensor y = scaled_dot_product_attention(x, k(), v(), seen);
  CHECK(values(y[1]) == Values{0, 0});
  y.sum().backward();
  CHECK(values(x.grad()[1]) == Values{0, 0, 0});
  CHECK(std::isfinite(x.grad().sum().item<double>()));
}

TEST_CASE("heads and batches are independent") {
  const Tensor x = sample_tensor({2, 3, 4, 5}), y = scaled_dot_product_attention(x, x, x);
  CHECK(y.shape() == Shape{2, 3, 4, 5});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      CHECK(allclose(y[i][j], scaled_dot_product_attention(x[i][j], x[i][j], x[i][j])));
}

TEST_CASE("attention can be differentiated twice") {
  const Tensor seen = sample_tensor({4, 5}) > 0;
  const variable_list in = {q().clone().set_requires_grad(true),
                            k().clone().set_requires_grad(true),
                            v().clone().set_requires_grad(true)};
  for (const bool causal : {false, true}) {
    const autograd::CheckedFunction f = [&](const variable_list& t) {
      return variable_list{
          scaled_dot_product_attention(t[0], t[1], t[2], causal ? Tensor() : seen, 0, causal)};
    };
    CHECK(autograd::gradcheck(f, in));
    CHECK(autograd::gradgradcheck(f, in));
  }
}

TEST_CASE("attention of many lengths agrees with matmul and softmax, values and gradients") {
  manual_seed(3);
  for (const auto& [queries, keys, features] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                                {31, 33, 8},
                                                {64, 64, 32},
                                                {100, 37, 5},
                                                {37, 100, 16},
                                                {300, 280, 24}}) {
    CAPTURE(queries);
    const Tensor seen = ones({queries, keys}, kBool).tril();
    for (const bool causal : {false, true}) {
      const variable_list in = {randn({2, 3, queries, features}, requires_grad()),
                                randn({2, 3, keys, features}, requires_grad()),
                                randn({2, 3, keys, 7}, requires_grad())};
      const Tensor g = randn({2, 3, queries, 7});
      const Tensor one = scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, causal);
      // A mask takes the way through the other ops.
      const Tensor steps = scaled_dot_product_attention(
          in[0], in[1], in[2], causal ? seen : ones({queries, keys}, kBool));
      CHECK(one.allclose(steps, 1e-4, 1e-5));
      const variable_list grads = autograd::grad({one}, in, {g}),
                          expected = autograd::grad({steps}, in, {g});
      for (size_t i = 0; i < in.size(); ++i) CHECK(grads[i].allclose(expected[i], 1e-3, 1e-4));
    }
  }
}

TEST_CASE("attention has the same bits on any number of threads") {
  manual_seed(4);
  const int threads = get_num_threads();
  const variable_list in = {randn({3, 2, 600, 16}, requires_grad()),
                            randn({3, 2, 600, 16}, requires_grad()),
                            randn({3, 2, 600, 16}, requires_grad())};
  const auto results = [&](int count) {
    set_num_threads(count);
    const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, true);
    variable_list all = autograd::grad({y}, in, {ones_like(y)});
    all.push_back(y.detach());
    return all;
  };
  const variable_list one = results(1), many = results(4);
  set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], many[i]));
}

TEST_CASE(
    "attention leaves the heads of a token side by side, so that joining them copies nothing") {
  const Tensor x = randn({2, 4, 6, 3}), y = scaled_dot_product_attention(x, x, x).transpose(1, 2);
  CHECK(y.is_contiguous());
  CHECK(y.reshape({2, 6, 12}).data_ptr<float>() == y.data_ptr<float>());
}

TEST_CASE("keys that no query sees get a gradient of zeros, and no keys give zeros") {
  const Tensor k = randn({5, 3}, requires_grad()), v = randn({5, 3}, requires_grad());
  scaled_dot_product_attention(randn({2, 3}), k, v, {}, 0, true).sum().backward();
  CHECK(values(k.grad().slice(0, 2, 5)) == Values(9, 0.0));
  CHECK(values(v.grad().slice(0, 2, 5)) == Values(9, 0.0));
  CHECK(values(scaled_dot_product_attention(ones({2, 3}), ones({0, 3}), ones({0, 3}))) ==
        Values(6, 0.0));
}

TEST_CASE("errors of attention show the shapes") {
  CHECK(contains(
      error_of([] { scaled_dot_product_attention(ones({2, 3}), ones({2, 4}), ones({2, 3})); }),
      "equally many features"));
  CHECK(contains(
      error_of([] { scaled_dot_product_attention(ones({2, 3}), ones({2, 3}), ones({4, 3})); }),
      "one value per key"));
  CHECK(contains(error_of([] {
                   scaled_dot_product_attention(ones({2, 3}), ones({2, 3}), ones({2, 3}),
                                                ones({2, 2}), 0, true);
                 }),
                 "pass either it or attn_mask"));
  CHECK(contains(error_of([] {
                   scaled_dot_product_attention(ones({2, 3}), ones({2, 3}), ones({2, 3}),
                                                ones({2, 2}, kInt64));
                 }),
                 "must be bool or f32"));
}

TEST_CASE("dropout keeps the expected value, and is nothing when not training") {
  const Tensor x = ones({10000});
  CHECK(dropout(x, 0.3, false).is_same(x));
  CHECK(dropout(x, 0, true).is_same(x));
  const Values y = values(dropout(x, 0.3));
  int64_t zeros_seen = 0;
  for (const double value : y) {
    CHECK((value == 0 || value == doctest::Approx(1 / 0.7).epsilon(1e-6)));
    zeros_seen += value == 0;
  }
  CHECK(zeros_seen > 2700);
  CHECK(zeros_seen < 3300);
  CHECK(dropout(x, 1).sum().item<double>() == 0);
  CHECK(contains(error_of([&] { dropout(x, 1.5); }),
                 "dropout: a probability lies between 0 and 1, got 1.5"));
}

TEST_CASE("dropout lets the gradient through where it let the value through") {
  const Tensor x = ones({100}, requires_grad());
  const Tensor y = dropout(x, 0.5);
  y.sum().backward();
  CHECK(same_bits(x.grad(), y.detach()));
}

TEST_CASE("without features every key weighs the same, in the gradient of the values too") {
  Tensor q = zeros({1, 1, 2, 0}), k = zeros({1, 1, 3, 0}), v = rand({1, 1, 3, 4}, requires_grad());
  const Tensor y = scaled_dot_product_attention(q, k, v);
  CHECK(y.allclose(v.mean({-2}, true).expand({1, 1, 2, 4})));
  y.sum().backward();
  CHECK(v.grad().allclose(full({1, 1, 3, 4}, 2.0 / 3)));
}
