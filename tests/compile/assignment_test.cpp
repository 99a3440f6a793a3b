/// Assignment to temporaries in every mode.
#include "grapnel/tensor/tensor_index.h"
#include "tests/compile/modes.h"

using namespace grapnel;
using namespace grapnel::indexing;

TEST_CASE(
    "assigning to views and to rows at positions is the same in every mode, gradients included") {
  const auto scenario = [](Mode& mode) {
    const Tensor w = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}, requires_grad());
    const Tensor v = tensor({0.5, -2.0}, requires_grad()), at = tensor({2, 0});
    Tensor loss = mode.call(
        [](const Tensor& x, const Tensor& u, const Tensor& rows) {
          Tensor y = x * 2;
          y[0] = u * u;
          y[1][0] = 7;
          y.select(1, 1) += u[0];
          y.index({Slice(1, None), 0}) *= u[1];
          y.index({rows}) = x.index({rows}) * u;
          y[rows] -= u;
          Tensor z = zeros({3, 2});
          for (int64_t i = 0; i < 3; ++i) z[i] = y[2 - i] * (i + 1.0);
          return (z * z).sum();
        },
        w, v, at);
    mode.backward([&] { loss.backward(); });
    return std::vector<Tensor>{loss.detach(), w.grad(), v.grad()};
  };
  Mode eager;
  const std::vector<Tensor> want = scenario(eager);
  in_all_modes({.F = 1, .B = 1}, [&](Mode& mode) {
    const std::vector<Tensor> got = scenario(mode);
    for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
  });
}

TEST_CASE("a recorded assignment writes to tensors outside, and not if the body throws") {
  on_each_backend([](CompileOptions options) {
    Tensor x = zeros({3});
    const Tensor rows = tensor({0, 2});
    bool fails = false;
    auto f = compile(
        [&](const Tensor& a) {
          x[1] = a.sum();
          x.index({rows}) += 1;
          check(!fails, "stop");
          return x.sum();
        },
        options);
    CHECK(f(ones({2})).item<double>() == 4);
    CHECK(values_of(x) == std::vector<double>{1, 2, 1});
    fails = true;
    CHECK_THROWS_AS(f(full({2}, 5.0)), Error);
    CHECK(values_of(x) == std::vector<double>{1, 2, 1});
    fails = false;
    CHECK(f(ones({2})).item<double>() == 6);
  });
}
