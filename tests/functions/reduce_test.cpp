#include <cmath>
#include <limits>

#include "grapnel/autograd/gradcheck.h"
#include "grapnel/ops/define.h"
#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor leaf(const Tensor& t) { return t.clone().set_requires_grad(true); }

/// Whether first and second gradients of fn agree with finite differences at x.
template <class Fn>
bool differentiable(const Tensor& x, Fn fn) {
  const autograd::CheckedFunction f = [fn](const variable_list& in) {
    return variable_list{fn(in[0])};
  };
  return autograd::gradcheck(f, {leaf(x)}) && autograd::gradgradcheck(f, {leaf(x)});
}

}  // namespace

TEST_CASE("sum reduces all dimensions, or those named, from either end") {
  const Tensor x = counting({2, 3});
  CHECK(values(x.sum()) == Values{15});
  CHECK(values(x.sum(0)) == Values{3, 5, 7});
  CHECK(values(x.sum(-1)) == Values{3, 12});
  CHECK(x.sum({0, 1}, true).shape() == Shape{1, 1});
  CHECK(sum(x, {1}, true).shape() == Shape{2, 1});
}

TEST_CASE("sums of integers and bools are i64, and a type may be asked for") {
  CHECK(ones({3}, kBool).sum().dtype() == kInt64);
  CHECK(ones({3}, kUInt8).sum().dtype() == kInt64);
  CHECK(ones({3}, kInt32).sum(kFloat64).dtype() == kFloat64);
  CHECK(ones({3}, kBFloat16).sum().dtype() == kBFloat16);
  // 300 is no bf16 partial sum that could be reached one by one.
  CHECK(ones({300}, kBFloat16).sum().item<double>() == 300);
}

TEST_CASE("the sum of nothing is 0, its mean is NaN, its product is 1") {
  const Tensor none = empty({0, 3});
  CHECK(none.sum().item<double>() == 0);
  CHECK(!std::signbit(none.sum().item<double>()));
  CHECK(std::isnan(none.mean().item<double>()));
  CHECK(values(none.prod(0)) == Values{1, 1, 1});
  CHECK(none.sum(1).shape() == Shape{0});
}

TEST_CASE("reductions of a 0-dimensional tensor accept dimension 0 and -1") {
  const Tensor x = tensor(2.5);
  CHECK(x.sum(0).item<double>() == 2.5);
  CHECK(x.amax({-1}).item<double>() == 2.5);
  CHECK(contains(error_of([&] { x.sum(1); }), "sum: dimension 1 is out of range"));
}

TEST_CASE("a dimension may be named once") {
  CHECK(contains(error_of([] { ones({2, 2}).sum({0, -2}); }),
                 "sum: dimension -2 appears twice in [0, -2]"));
}

TEST_CASE("the mean of integers is refused with advice") {
  CHECK(contains(error_of([] { ones({2}, kInt64).mean(); }), "x.to(kFloat32)"));
  CHECK(ones({2}, kInt64).mean(kFloat32).item<double>() == 1);
}

TEST_CASE("an extreme of no values is an error that names the dimension") {
  CHECK(contains(error_of([] { empty({0}).amax(); }),
                 "amax: dimension 0 of shape [0] holds no values"));
  CHECK(contains(error_of([] { empty({2, 0}).amin({1}); }),
                 "amin: dimension 1 of shape [2, 0] holds no values"));
  CHECK(contains(error_of([] { empty({0}).max(); }), "holds no values"));
  CHECK(empty({0, 3}).amax({1}).shape() == Shape{0});
}

TEST_CASE("extremes keep NaN and share the gradient evenly among equals") {
  CHECK(std::isnan(tensor({1.0, NAN, 3.0}).max().item<double>()));
  CHECK(std::isnan(tensor({NAN, 1.0, 3.0}).min().item<double>()));
  for (const int64_t n : {1, 63, 64, 65, 130, 5000})
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      Tensor x = arange(n).to(kFloat32);
      x[at].fill_(NAN);
      CHECK(std::isnan(x.max().item<float>()));
      CHECK(std::isnan(x.min().item<float>()));
      x[at].fill_(INFINITY);
      CHECK(std::isinf(x.max().item<float>()));
    }
  CHECK(gradient(tensor({3.0, 1.0, 3.0}), [](const Tensor& x) { return x.max(); }) ==
        Values{0.5, 0, 0.5});
  CHECK(values(max(tensor({1.0, 5.0}), tensor({2.0, 3.0}))) == Values{2, 5});
}

TEST_CASE("any and all look at truth, also of nothing") {
  CHECK(tensor({0.0, 2.0}).any().item<bool>());
  CHECK(!tensor({0.0, 2.0}).all().item<bool>());
  CHECK(!empty({0}).any().item<bool>());
  CHECK(empty({0}).all().item<bool>());
  CHECK(values(tensor({{1, 0}, {1, 1}}).all(1)) == Values{0, 1});
  CHECK(tensor({{1, 0}, {1, 1}}).any(0, true).shape() == Shape{1, 2});
}

TEST_CASE(
    "the gradient of a product is the product of the others, zeros or not, and twice "
    "differentiable") {
  auto product = [](const Tensor& x) { return x.prod(); };
  CHECK(gradient(tensor({2.0, 3.0, 4.0}), product) == Values{12, 8, 6});
  CHECK(gradient(tensor({2.0, 0.0, 4.0}), product) == Values{0, 8, 0});
  CHECK(gradient(tensor({0.0, 0.0, 4.0}), product) == Values{0, 0, 0});
  const Tensor x = tensor({{1.5, 0.0, -2.0}, {0.0, 3.0, 0.0}}, kFloat64);
  CHECK(differentiable(x, product));
  CHECK(differentiable(x, [](const Tensor& t) { return t.prod(0); }));
  CHECK(differentiable(x, [](const Tensor& t) { return t.prod(1, true); }));
  CHECK(gradient(tensor({7.0}), product) == Values{1});
}

TEST_CASE(
    "var and std divide by n - 1 unless told otherwise, and std is flat where nothing varies") {
  const Tensor x = tensor({1.0, 2.0, 4.0, 5.0}, kFloat64);
  CHECK(x.var().item<double>() == doctest::Approx(10.0 / 3));
  CHECK(x.var(false).item<double>() == 2.5);
  CHECK(x.std().item<double>() == doctest::Approx(std::sqrt(10.0 / 3)));
  CHECK(std::isnan(tensor({1.0}).var().item<double>()));
  CHECK(gradient(tensor({2.0, 2.0}), [](const Tensor& t) { return t.std(); }) == Values{0, 0});
  CHECK(differentiable(x, [](const Tensor& t) { return t.var(); }));
  CHECK(differentiable(x, [](const Tensor& t) { return t.std({0}, false, true); }));
}

TEST_CASE("norm knows every p") {
  const Tensor x = tensor({3.0, -4.0, 0.0}, kFloat64);
  CHECK(x.norm().item<double>() == 5);
  CHECK(x.norm(1).item<double>() == 7);
  CHECK(x.norm(0).item<double>() == 2);
  CHECK(x.norm(kInf).item<double>() == 4);
  CHECK(x.norm(-kInf).item<double>() == 0);
  CHECK(x.norm(3).item<double>() == doctest::Approx(std::cbrt(91.0)));
  CHECK(x.norm(-1).item<double>() == 0);
  CHECK(values(counting({2, 2}).norm(2, {1}, true)) == Values{1, std::sqrt(13.0)});
}

TEST_CASE("the gradient of every norm is finite at zero") {
  for (const double p : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0}) {
    CAPTURE(p);
    CHECK(gradient(tensor({0.0, 0.0}), [p](const Tensor& t) { return t.norm(p); }) == Values{0, 0});
    for (const double g : gradient(tensor({0.0, 2.0}), [p](const Tensor& t) { return t.norm(p); }))
      CHECK(std::isfinite(g));
  }
  const Tensor x = tensor({1.5, -0.5, 2.0}, kFloat64);
  for (const double p : {1.0, 1.5, 2.0, 3.0})
    CHECK(differentiable(x, [p](const Tensor& t) { return t.norm(p); }));
}

TEST_CASE("logsumexp neither overflows nor stumbles over infinities") {
  CHECK(tensor({1000.0, 1000.0}).logsumexp({0}).item<double>() ==
        doctest::Approx(1000 + std::log(2.0)));
  CHECK(tensor({-kInf, -kInf}).logsumexp({0}).item<double>() == -kInf);
  CHECK(tensor({0.0, kInf}).logsumexp({0}).item<double>() == kInf);
  CHECK(counting({2, 3, 4}).logsumexp({0, 2}).shape() == Shape{3});
  CHECK(differentiable(sample_tensor({2, 3}), [](const Tensor& t) { return t.logsumexp({1}); }));
}

TEST_CASE("narrow types are rounded once, at the end") {
  const Tensor x = sample_tensor({100}).to(kBFloat16);
  CHECK(same_bits(x.var(), x.to(kFloat32).var().to(kBFloat16)));
  CHECK(same_bits(x.norm(), x.to(kFloat32).norm().to(kBFloat16)));
}

TEST_CASE("sum_to_size undoes broadcasting") {
  const Tensor x = counting({2, 3, 2});
  CHECK(values(x.sum_to_size({3, 1})) == Values{14, 22, 30});
  CHECK(values(x.sum_to_size({2})) == Values{30, 36});
  CHECK(x.sum_to_size({2, 1, 2}).shape() == Shape{2, 1, 2});
  CHECK(x.sum_to_size({2, 3, 2}).is_same(x));
  CHECK(contains(error_of([&] { x.sum_to_size({4, 2}); }),
                 "sum_to_size: shape [2, 3, 2] was not broadcast from [4, 2]"));
}

TEST_CASE("running sums and products of integers wrap round") {
  const int64_t least = std::numeric_limits<int64_t>::min();
  const Tensor x = tensor({least, least, int64_t{5}});
  CHECK(equal(cumsum(x, 0), tensor({least, int64_t{0}, int64_t{5}})));
  CHECK(equal(cumprod(x, 0), tensor({least, int64_t{0}, int64_t{0}})));
}
