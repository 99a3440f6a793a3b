#include <cmath>
#include <limits>

#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

/// Softmax and its logarithm from the ops they stand for; narrow types in f32, rounded once.
Tensor composed(const Tensor& x, int64_t dim, bool log_of_it) {
  const bool narrow = x.dtype() == kBFloat16 || x.dtype() == kFloat16;
  const Tensor w = narrow ? x.to(kFloat32) : x;
  const Tensor z = w - w.amax({dim}, true), e = exp(z);
  const Tensor y = log_of_it ? z - log(e.sum({dim}, true)) : e / e.sum({dim}, true);
  return narrow ? y.to(x.dtype()) : y;
}

/// The same for their gradients, given the results y.
Tensor composed_gradient(const Tensor& g, const Tensor& y, int64_t dim, bool log_of_it) {
  const bool narrow = y.dtype() == kBFloat16 || y.dtype() == kFloat16;
  const Tensor wide_g = narrow ? g.to(kFloat32) : g, wide_y = narrow ? y.to(kFloat32) : y,
               product = wide_g * wide_y;
  const Tensor gx = log_of_it ? wide_g - exp(wide_y) * wide_g.sum({dim}, true)
                              : product - wide_y * product.sum({dim}, true);
  return narrow ? gx.to(y.dtype()) : gx;
}

Tensor gradient_of(Tensor (*f)(const Tensor&, int64_t), const Tensor& x, int64_t dim,
                   const Tensor& g) {
  const Tensor leaf = x.detach().requires_grad_();
  return autograd::grad({f(leaf, dim)}, {leaf}, {g})[0];
}

}  // namespace

TEST_CASE(
    "softmax and its gradient have the bits of their decompositions, whatever the type, length, "
    "dimension and "
    "instruction set") {
  for (const base::Isa isa : available_isas()) {
    const IsaScope scope(isa);
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
      for (const auto& [sizes, dim] : {std::pair<Shape, int64_t>{{3, 10}, 1},
                                       {{2, 1}, 1},
                                       {{7, 4}, 0},
                                       {{2, 65, 3}, 1},
                                       {{2, 4096}, -1},
                                       {{2, 10000}, -1},
                                       {{5000, 2}, 0},
                                       {{}, 0}}) {
        CAPTURE(dtype);
        CAPTURE(sizes);
        const Tensor x = (sample_tensor(sizes) * 5).to(dtype);
        CHECK(same_bits(softmax(x, dim), composed(x, dim, false)));
        CHECK(same_bits(log_softmax(x, dim), composed(x, dim, true)));
        if (sizes.size() == 2)
          CHECK(same_bits(softmax(column_major(x), dim), composed(x, dim, false)));
        const Tensor g = sample_tensor(sizes, -2, 3).to(dtype);
        CHECK(same_bits(gradient_of(softmax, x, dim, g),
                        composed_gradient(g, softmax(x, dim), dim, false)));
        CHECK(same_bits(gradient_of(log_softmax, x, dim, g),
                        composed_gradient(g, log_softmax(x, dim), dim, true)));
      }
  }
}

TEST_CASE("softmax sums to 1 and survives large numbers") {
  const Tensor x = tensor({1000.0, 1001.0, 1002.0}, kFloat64);
  CHECK(softmax(x, 0).sum().item<double>() == doctest::Approx(1).epsilon(1e-15));
  CHECK(values(log_softmax(x, 0))[2] ==
        doctest::Approx(-std::log(1 + std::exp(-1.0) + std::exp(-2.0))).epsilon(1e-14));
}

TEST_CASE("values that are -inf get no weight, and a row of them is NaN") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(values(softmax(tensor({-inf, 0.0, -inf}), 0)) == Values{0, 1, 0});
  CHECK(std::isnan(values(softmax(tensor({-inf, -inf}), 0))[0]));
}

TEST_CASE("softmax of nothing is nothing, of integers an error, and the dimension must exist") {
  CHECK(softmax(empty({0, 3}), 1).shape() == Shape{0, 3});
  CHECK(softmax(empty({3, 0}), 1).shape() == Shape{3, 0});
  CHECK(contains(error_of([] { softmax(ones({2}, kInt64), 0); }), "softmax: not defined for i64"));
  CHECK(contains(error_of([] { log_softmax(ones({2}), 1); }),
                 "log_softmax: dimension 1 is out of range"));
}

TEST_CASE("the gradient of softmax is y * (g - sum(g * y))") {
  const Tensor x = tensor({0.0, 1.0}, kFloat64);
  const double a = 1 / (1 + std::exp(1.0)), b = 1 - a;
  const Values g = gradient(x, [](const Tensor& t) { return softmax(t, 0); });
  CHECK(g[0] == doctest::Approx(-a * b).epsilon(1e-14));
  CHECK(g[1] == doctest::Approx(a * b).epsilon(1e-14));
}

TEST_CASE("the number of threads changes no bit of softmax") {
  for (const auto& [sizes, dim] :
       {std::pair<Shape, int64_t>{{300, 1000}, 1}, {{1000, 300}, 0}, {{3, 100000}, 1}}) {
    const Tensor x = sample_tensor(sizes).to(kFloat32);
    Tensor one;
    {
      const ThreadsScope scope(1);
      one = softmax(x, dim);
    }
    const ThreadsScope scope(2);
    CHECK(same_bits(one, softmax(x, dim)));
  }
}
