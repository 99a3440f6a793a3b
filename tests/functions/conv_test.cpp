#include "grapnel/ops/define.h"
#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

struct Case {
  int64_t n, c, h, w, o, kh, kw;
  Shape stride, padding, dilation;
  int64_t groups;
};

/// Convolution by definition, in double.
Values naive(const Case& k, const Tensor& x, const Tensor& weight, const Shape& out) {
  const Values xs = values(x), ws = values(weight);
  const int64_t per_group = k.c / k.groups, out_per_group = k.o / k.groups;
  Values ys;
  for (int64_t n = 0; n < k.n; ++n)
    for (int64_t o = 0; o < k.o; ++o)
      for (int64_t i = 0; i < out[2]; ++i)
        for (int64_t j = 0; j < out[3]; ++j) {
          double sum = 0;
          for (int64_t c = 0; c < per_group; ++c)
            for (int64_t p = 0; p < k.kh; ++p)
              for (int64_t q = 0; q < k.kw; ++q) {
                const int64_t r = i * k.stride[0] - k.padding[0] + p * k.dilation[0],
                              s = j * k.stride[1] - k.padding[1] + q * k.dilation[1];
                if (r < 0 || r >= k.h || s < 0 || s >= k.w) continue;
                const int64_t channel = o / out_per_group * per_group + c;
                sum += xs[static_cast<size_t>(((n * k.c + channel) * k.h + r) * k.w + s)] *
                       ws[static_cast<size_t>(((o * per_group + c) * k.kh + p) * k.kw + q)];
              }
          ys.push_back(sum);
        }
  return ys;
}

const Case kCases[] = {
    {2, 3, 7, 6, 4, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1},
    {1, 4, 8, 9, 6, 3, 2, {2, 1}, {1, 1}, {1, 2}, 2},
    {2, 4, 5, 5, 4, 1, 1, {1, 1}, {0, 0}, {1, 1}, 4},
    {1, 1, 4, 4, 1, 4, 4, {3, 3}, {2, 2}, {1, 1}, 1},
};

}  // namespace

TEST_CASE("conv2d agrees with the definition in every floating type") {
  for (const Case& k : kCases)
    for (const DType dtype : {kFloat64, kFloat32, kBFloat16}) {
      CAPTURE(dtype);
      const Tensor x = sample_tensor({k.n, k.c, k.h, k.w}, -1, 1).to(dtype),
                   w = sample_tensor({k.o, k.c / k.groups, k.kh, k.kw}, -1, 1).to(dtype);
      const Tensor y = conv2d(x, w, {}, k.stride, k.padding, k.dilation, k.groups);
      const Values expected = naive(k, x, w, y.shape()), got = values(y);
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(got[i] == doctest::Approx(expected[i])
                            .epsilon(dtype == kFloat64   ? 1e-13
                                     : dtype == kFloat32 ? 1e-5
                                                         : 1e-2)
                            .scale(1));
    }
}

TEST_CASE("the bias is added to the finished convolution") {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor x = sample_tensor({2, 3, 5, 5}).to(dtype),
                 w = sample_tensor({4, 3, 3, 3}).to(dtype), b = sample_tensor({4}).to(dtype);
    CHECK(same_bits(conv2d(x, w, b), conv2d(x, w) + b.view({4, 1, 1})));
  }
}

TEST_CASE("gradients of conv2d agree with those of the unfolded definition") {
  // Linear in x and in the weight: the gradient dotted with any direction is the convolution in
  // that direction.
  for (const Case& k : kCases) {
    const Tensor x =
        sample_tensor({k.n, k.c, k.h, k.w}, -1, 1).to(kFloat32).set_requires_grad(true);
    const Tensor w = sample_tensor({k.o, k.c / k.groups, k.kh, k.kw}, -1, 1)
                         .to(kFloat32)
                         .set_requires_grad(true);
    const Tensor y = conv2d(x, w, {}, k.stride, k.padding, k.dilation, k.groups);
    const Tensor g = sample_tensor(y.sizes(), -1, 1).to(kFloat32);
    y.backward(g);
    const double along = (y.detach() * g).sum().item<double>();
    CHECK((x.grad() * x.detach()).sum().item<double>() ==
          doctest::Approx(along).epsilon(1e-4).scale(1));
    CHECK((w.grad() * w.detach()).sum().item<double>() ==
          doctest::Approx(along).epsilon(1e-4).scale(1));
  }
}

TEST_CASE("conv1d is conv2d on a picture of height 1") {
  const Tensor x = sample_tensor({2, 3, 10}), w = sample_tensor({4, 3, 3}), b = sample_tensor({4});
  const Tensor y = conv1d(x, w, b, {2}, {1}, {2});
  CHECK(same_bits(y, conv2d(x.unsqueeze(2), w.unsqueeze(2), b, {1, 2}, {0, 1}, {1, 2}).squeeze(2)));
  CHECK(conv1d(x[0], w, b, {2}, {1}, {2}).shape() == Shape{4, y.size(2)});
  CHECK(conv2d(ones({3, 5, 5}), ones({4, 3, 2, 2})).shape() == Shape{4, 4, 4});
}

TEST_CASE("the bias of conv2d has the bits of an addition afterwards") {
  manual_seed(5);
  for (const DType type : {kFloat32, kFloat64, kBFloat16})
    for (const auto [images, channels, kernels, groups, height] :
         {std::array<int64_t, 5>{1, 2, 3, 1, 9},
          {64, 16, 32, 1, 9},
          {3, 4, 6, 2, 9},
          {5, 8, 96, 8, 9},
          {2, 0, 3, 1, 9},
          {3, 2, 5, 1, 300}})
      for (const int64_t step : {1, 2}) {
        CAPTURE(type);
        CAPTURE(images);
        CAPTURE(kernels);
        const Tensor x = randn({images, channels, height, 7}).to(type),
                     w = randn({kernels, channels / groups, 3, 2}).to(type),
                     bias = randn({2 * kernels}).to(type).slice(0, 0, kernels * step, step);
        CHECK(same_bits(conv2d(x, w, bias, 1, 1, 1, groups),
                        conv2d(x, w, {}, 1, 1, 1, groups) + bias.view({kernels, 1, 1})));
      }
}

TEST_CASE("an empty batch gives an empty result and a zero gradient") {
  const Tensor x = empty({0, 2, 5, 5}, requires_grad()), w = ones({3, 2, 2, 2}, requires_grad());
  const Tensor y = conv2d(x, w);
  CHECK(y.shape() == Shape{0, 3, 4, 4});
  y.sum().backward();
  CHECK(values(w.grad()) == Values(24, 0.0));
}

TEST_CASE("errors of conv2d show the shapes and say what to do") {
  CHECK(contains(error_of([] { conv2d(ones({1, 3, 4, 4}), ones({2, 4, 2, 2})); }),
                 "conv2d: x has 3 channels, weight takes 4"));
  CHECK(contains(error_of([] { conv2d(ones({1, 1, 2, 2}), ones({1, 1, 3, 3})); }),
                 "reaches over 3 elements, but x has 2 with padding in dimension 2"));
  CHECK(contains(
      error_of([] { conv2d(ones({1, 4, 4, 4}), ones({3, 2, 2, 2}), {}, {1}, {0}, {1}, 2); }),
      "groups must divide"));
  CHECK(contains(error_of([] { conv2d(ones({1, 1, 4, 4}), ones({1, 1, 2, 2}), {}, {0}); }),
                 "conv2d: stride must be at least 1"));
  CHECK(contains(error_of([] { conv2d(ones({1, 1, 4, 4}), ones({1, 1, 2, 2}), ones({2})); }),
                 "bias must be f32[1]"));
  CHECK(contains(error_of([] { conv2d(ones({1, 1, 4, 4}, kInt64), ones({1, 1, 2, 2}, kInt64)); }),
                 "not defined for i64"));
  CHECK(contains(error_of([] { conv2d(ones({4, 4}), ones({1, 1, 2, 2})); }),
                 "conv2d: x must be [batch, channels, height, width]"));
  CHECK(contains(error_of([] { conv1d(ones({4}), ones({1, 1, 2})); }), "conv1d: x must be"));
}

TEST_CASE("the number of threads changes no bit of a convolution or its gradients") {
  auto run = [] {
    const Tensor x = sample_tensor({8, 16, 20, 20}).to(kFloat32).set_requires_grad(true);
    const Tensor w = sample_tensor({32, 16, 3, 3}).to(kFloat32).set_requires_grad(true),
                 b = sample_tensor({32}).to(kFloat32).set_requires_grad(true);
    const Tensor y = conv2d(x, w, b, {1}, {1});
    y.square().sum().backward();
    return Outputs{y.detach(), x.grad(), w.grad(), b.grad()};
  };
  Outputs one;
  {
    const ThreadsScope scope(1);
    one = run();
  }
  const ThreadsScope scope(2);
  CHECK(same_bits(one, run()));
}
