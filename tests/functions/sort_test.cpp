/// Sorting, extremes with positions, running sums and products.
#include <algorithm>
#include <limits>

#include "grapnel/base/thread_pool.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();
/// NaN as a number that can be compared.
Values seen(const Tensor& t) {
  Values v = values(t);
  for (double& x : v)
    if (x != x) x = 999;
  return v;
}
}  // namespace

TEST_CASE("sort is stable in both directions and tells where values came from") {
  const auto [up, from] = tensor({3, 1, 2, 1, 3}).sort();
  CHECK(values(up) == Values{1, 1, 2, 3, 3});
  CHECK(values(from) == Values{1, 3, 2, 0, 4});
  const auto [down, origin] = sort(tensor({3, 1, 2, 1, 3}), -1, true);
  CHECK(values(down) == Values{3, 3, 2, 1, 1});
  CHECK(values(origin) == Values{0, 4, 2, 1, 3});
  CHECK(values(std::get<0>(tensor({{3, 1}, {2, 5}}).sort(0))) == Values{2, 1, 3, 5});
  CHECK(values(tensor({3, 1, 2}).argsort()) == Values{1, 2, 0});
  CHECK(values(tensor({3, 1, 2}).argsort(0, true)) == Values{0, 2, 1});
  CHECK(std::get<0>(scalar_tensor(2.0).sort()).shape() == Shape{});
  CHECK(std::get<1>(zeros({2, 0}).sort()).shape() == Shape{2, 0});
  CHECK(std::get<0>(tensor({true, false}).sort()).dtype() == kBool);
}

TEST_CASE("NaN sorts as the largest value") {
  const Tensor x = tensor({1.0, kNan, kInf, -kInf, kNan});
  CHECK(seen(std::get<0>(x.sort())) == Values{-kInf, 1, kInf, 999, 999});
  CHECK(values(std::get<1>(x.sort())) == Values{3, 0, 2, 1, 4});
  CHECK(values(std::get<1>(x.sort(0, true))) == Values{1, 4, 2, 0, 3});
  CHECK(values(std::get<1>(x.topk(2))) == Values{1, 4});
}

TEST_CASE("topk gives the head of the sorted values") {
  const Tensor x = tensor({{4, 9, 7}, {1, 1, 0}});
  const auto [top, at] = topk(x, 2);
  CHECK(values(top) == Values{9, 7, 1, 1});
  CHECK(values(at) == Values{1, 2, 0, 1});
  CHECK(values(std::get<0>(x.topk(1, 0, false))) == Values{1, 1, 0});
  CHECK(std::get<0>(x.topk(0)).shape() == Shape{2, 0});
  CHECK(std::get<1>(scalar_tensor(5.0).topk(1)).shape() == Shape{});
  CHECK(contains(error_of([&] { x.topk(4); }),
                 "topk: k is 4, but dimension 1 has 3 elements (shape [2, 3])."));
  const Tensor big = randn({40, 1000});
  CHECK(equal(std::get<1>(big.topk(17)), std::get<1>(big.sort(-1, true)).slice(1, 0, 17)));
}

TEST_CASE("max and min along a dimension give value and first position") {
  const Tensor x = tensor({{1.0, 5.0, 5.0}, {2.0, -3.0, 0.0}});
  const auto [high, where_high] = max(x, 1);
  CHECK(values(high) == Values{5, 2});
  CHECK(values(where_high) == Values{1, 0});
  const auto [low, where_low] = x.min(0, true);
  CHECK(low.shape() == Shape{1, 3});
  CHECK(values(low) == Values{1, -3, 0});
  CHECK(values(where_low) == Values{0, 1, 1});
  CHECK(std::get<0>(scalar_tensor(3.0).max(0)).item<double>() == 3);
  CHECK(std::get<0>(zeros({0, 2}).max(1)).shape() == Shape{0});
  CHECK(values(std::get<0>(tensor({3, 200, 7}, kUInt8).max(0))) == Values{200});
  CHECK(contains(error_of([&] { zeros({2, 0}).max(1); }), "max: dimension 1 has size 0"));
  CHECK(contains(error_of([&] { zeros({2, 0}).min(1); }), "min: dimension 1 has size 0"));
}

TEST_CASE("the first NaN is the extreme") {
  const Tensor x = tensor({1.0, kNan, 7.0, kNan});
  CHECK(x.argmax().item<int64_t>() == 1);
  CHECK(x.argmin().item<int64_t>() == 1);
  CHECK(seen(std::get<0>(x.min(0))) == Values{999});
  CHECK(values(std::get<1>(tensor({kNan, 1.0}).max(0))) == Values{0});
}

TEST_CASE("argmax and argmin count through the whole tensor unless given a dimension") {
  const Tensor x = tensor({{1, 9, 3}, {0, 9, -4}});
  CHECK(argmax(x).item<int64_t>() == 1);
  CHECK(argmin(x).item<int64_t>() == 5);
  CHECK(x.argmax({}, true).shape() == Shape{1, 1});
  CHECK(values(x.argmax(0)) == Values{0, 0, 0});
  CHECK(values(x.argmin(-1)) == Values{0, 2});
  CHECK(x.argmax(1, true).shape() == Shape{2, 1});
  CHECK(x.t().argmax().item<int64_t>() == 2);
  CHECK(scalar_tensor(2.0).argmax().item<int64_t>() == 0);
  CHECK(contains(error_of([&] { zeros({0}).argmax(); }),
                 "argmax: a tensor without elements has no extreme"));
  CHECK(contains(error_of([&] { zeros({0}).argmin(0); }), "argmin: dimension 0 has size 0"));
}

TEST_CASE("gradients of picked values go back to where they came from") {
  const Tensor x = tensor({{3.0, 1.0, 2.0}, {4.0, 6.0, 5.0}}, kFloat64);
  CHECK(gradient(x, [](const Tensor& t) { return std::get<0>(t.sort()); }) ==
        Values{3, 1, 2, 4, 6, 5});
  CHECK(gradient(x, [](const Tensor& t) { return std::get<0>(t.topk(1)); }) ==
        Values{1, 0, 0, 0, 2, 0});
  CHECK(gradient(x, [](const Tensor& t) { return std::get<0>(t.max(1)); }) ==
        Values{1, 0, 0, 0, 2, 0});
  CHECK(gradient(x, [](const Tensor& t) { return std::get<0>(t.min(0, true)); }) ==
        Values{1, 2, 3, 0, 0, 0});
  CHECK(gradient(scalar_tensor(2.0, kFloat64),
                 [](const Tensor& t) { return std::get<0>(t.max(0)); }) == Values{1});
  const Tensor leaf = x.clone().set_requires_grad(true);
  CHECK(!std::get<1>(leaf.sort()).requires_grad());
  CHECK(!leaf.argmax().requires_grad());
}

TEST_CASE("cumsum and cumprod run along a dimension") {
  const Tensor x = counting({2, 3}) + 1.0;
  CHECK(values(cumsum(x, 1)) == Values{1, 3, 6, 4, 9, 15});
  CHECK(values(x.cumsum(0)) == Values{1, 2, 3, 5, 7, 9});
  CHECK(values(cumprod(x, -1)) == Values{1, 2, 6, 4, 20, 120});
  CHECK(x.t().cumsum(0).shape() == Shape{3, 2});
  CHECK(tensor({true, true}).cumsum(0).dtype() == kInt64);
  CHECK(values(tensor({200, 100}, kUInt8).cumsum(0)) == Values{200, 300});
  CHECK(scalar_tensor(3.0).cumsum(0).item<double>() == 3);
  CHECK(zeros({0, 2}).cumprod(0).shape() == Shape{0, 2});
  CHECK(zeros({2, 0}).cumsum(0).shape() == Shape{2, 0});
  CHECK(contains(error_of([&] { x.cumsum(2); }), "cumsum: dimension 2 is out of range"));
}

TEST_CASE("running sums of narrow types are rounded once per element") {
  const Tensor y = ones({1000}, kBFloat16).cumsum(0);
  CHECK(y.dtype() == kBFloat16);
  CHECK(y[999].item<float>() == static_cast<float>(BFloat16(1000.0f)));
}

TEST_CASE("the gradient of cumprod needs no division, so zeros are no trouble") {
  const Tensor x = tensor({2.0, 0.0, 3.0, 0.0}, kFloat64);
  // y = x0, x0 x1, x0 x1 x2, x0 x1 x2 x3 with weights 1 to 4.
  CHECK(gradient(x, [](const Tensor& t) { return t.cumprod(0); }) ==
        Values{1, 2 * 2 + 3 * 2 * 3, 0, 0});
  CHECK(gradient(counting({3}), [](const Tensor& t) { return t.cumsum(0); }) == Values{6, 5, 3});
}

TEST_CASE("large sorts and running sums do not depend on the number of threads or the layout") {
  const Tensor x = randn({200, 300});
  auto all = [](const Tensor& t) {
    return std::vector{std::get<0>(t.sort(0)),
                       std::get<1>(t.sort(1)),
                       t.cumsum(0),
                       t.cumsum(1),
                       t.argmax(0),
                       std::get<0>(t.min(1)),
                       t.cumprod(0)};
  };
  const int threads = get_num_threads();
  set_num_threads(1);
  const auto one = all(x);
  set_num_threads(2);
  const auto two = all(x), transposed = all(x.t().contiguous().t());
  set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(equal(one[i], two[i]));
    CHECK(equal(one[i], transposed[i]));
  }
  Values row = values(x[7]);
  std::sort(row.begin(), row.end());
  CHECK(values(std::get<0>(x.sort(1))[7]) == row);
}
