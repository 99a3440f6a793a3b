#include <cmath>

#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

TEST_CASE("max_pool2d gives the largest value of each window") {
  const Tensor x = counting({1, 1, 4, 4});
  CHECK(values(max_pool2d(x, {2})) == Values{5, 7, 13, 15});
  CHECK(values(max_pool2d(x, {2}, {1})).size() == 9);
  CHECK(values(max_pool2d(-x, {3}, {2}, {1})) == Values{0, -1, -4, -5});
  CHECK(values(max_pool2d(x, {2, 1}, {2, 4})) == Values{4, 12});
  CHECK(values(max_pool2d(x, {2}, {1}, {0}, {2})) == Values{10, 11, 14, 15});
  CHECK(max_pool2d(counting({3, 4, 4}), {2}).shape() == Shape{3, 2, 2});
}

TEST_CASE("ceil_mode adds windows that begin inside the image, and no others") {
  const Tensor x = counting({1, 1, 5, 5});
  CHECK(max_pool2d(x, {2}).shape() == Shape{1, 1, 2, 2});
  CHECK(max_pool2d(x, {2}, {}, {0}, {1}, true).shape() == Shape{1, 1, 3, 3});
  CHECK(values(max_pool2d(x, {2}, {}, {0}, {1}, true)) == Values{6, 8, 9, 16, 18, 19, 21, 23, 24});
  CHECK(max_pool2d(counting({1, 1, 2, 2}), {1}, {3}, {0}, {1}, true).shape() == Shape{1, 1, 1, 1});
}

TEST_CASE(
    "the gradient of max_pool2d goes to the first of the largest, and overlapping windows add up") {
  auto pool = [](const Tensor& t) { return max_pool2d(t, {2}, {1}); };
  CHECK(gradient(zeros({1, 1, 2, 2}), pool) == Values{1, 0, 0, 0});
  const Tensor peak = tensor({0.0, 0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0}).view({1, 1, 3, 3});
  CHECK(gradient(peak, pool) == Values{0, 0, 0, 0, 10, 0, 0, 0, 0});
}

TEST_CASE("NaN is larger than any number in max_pool2d") {
  CHECK(
      std::isnan(max_pool2d(tensor({1.0, NAN, 3.0, 2.0}).view({1, 1, 2, 2}), {2}).item<double>()));
}

TEST_CASE("avg_pool2d divides by the window, with or without its padding") {
  const Tensor x = ones({1, 1, 3, 3}, kFloat64);
  CHECK(values(avg_pool2d(x, {2}, {2}, {1})) == Values{0.25, 0.5, 0.5, 1});
  CHECK(values(avg_pool2d(x, {2}, {2}, {1}, false, false)) == Values{1, 1, 1, 1});
  CHECK(values(avg_pool2d(counting({1, 1, 2, 4}), {2})) == Values{2.5, 4.5});
  // Windows that reach beyond the padding count only what exists.
  CHECK(values(avg_pool2d(x, {2}, {2}, {0}, true)) == Values{1, 1, 1, 1});
}

TEST_CASE("pooling works in every floating type, and on nothing") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    const Tensor x = counting({1, 2, 4, 4}, dtype);
    CHECK(max_pool2d(x, {2}).dtype() == dtype);
    CHECK(values(max_pool2d(x, {2})) == Values{5, 7, 13, 15, 21, 23, 29, 31});
    CHECK(values(avg_pool2d(x, {2})) == Values{2.5, 4.5, 10.5, 12.5, 18.5, 20.5, 26.5, 28.5});
  }
  CHECK(max_pool2d(empty({0, 2, 4, 4}), {2}).shape() == Shape{0, 2, 2, 2});
}

TEST_CASE("errors of pooling show the sizes and say what to do") {
  CHECK(contains(error_of([] { max_pool2d(ones({1, 1, 2, 2}), {3}); }),
                 "max_pool2d: a window of 3 does not fit an image of 2 with padding 0"));
  CHECK(contains(error_of([] { avg_pool2d(ones({1, 1, 4, 4}), {2}, {}, {2}); }),
                 "padding must be at most half of kernel_size"));
  CHECK(contains(error_of([] { max_pool2d(ones({4, 4}), {2}); }),
                 "x must be [batch, channels, height, width]"));
  CHECK(
      contains(error_of([] { max_pool2d(ones({1, 4, 4}, kInt64), {2}); }), "not defined for i64"));
  CHECK(contains(error_of([] { max_pool2d(ones({1, 4, 4}), {0}); }), "must be at least 1"));
  CHECK(contains(error_of([] { max_pool2d(ones({1, 4, 4}), {2, 2, 2}); }),
                 "kernel_size takes one number or [vertical, horizontal]"));
  // A window with gaps may fall beside the image altogether.
  CHECK(contains(error_of([] { max_pool2d(ones({1, 1, 1}), {2}, {1}, {1}, {3}, true); }),
                 "does not fit"));
}

TEST_CASE("the number of threads changes no bit of pooling") {
  auto run = [] {
    const Tensor x = sample_tensor({8, 16, 33, 31}).to(kFloat32).set_requires_grad(true);
    const Tensor y = max_pool2d(x, {3}, {2}, {1}), z = avg_pool2d(x, {3}, {2}, {1});
    (y.sum() + z.square().sum()).backward();
    return Outputs{y.detach(), z.detach(), x.grad()};
  };
  Outputs one;
  {
    const ThreadsScope scope(1);
    one = run();
  }
  const ThreadsScope scope(2);
  CHECK(same_bits(one, run()));
}
