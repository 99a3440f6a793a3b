// LibTorch-style programs with indices and views.
#include <doctest/doctest.h>

#include "grapnel/compat/torch.h"

using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;

TEST_CASE("slices, ellipsis and new dimensions read like Python's") {
  auto x = torch::arange(24).view({2, 3, 4});
  CHECK(x.index({0, 1, 2}).item<int64_t>() == 6);
  CHECK(torch::equal(x.index({1, Slice(), 0}), torch::tensor({12, 16, 20})));
  CHECK(torch::equal(x.index({Ellipsis, Slice(None, None, 2)}), x.slice(2, 0, 4, 2)));
  CHECK(torch::equal(x.index({"...", -1}), x.select(2, 3)));
  CHECK(x.index({None, 0}).sizes() == torch::IntArrayRef({1, 3, 4}));
  CHECK(torch::equal(x.index({0, torch::tensor({2, 0})}), torch::stack({x[0][2], x[0][0]})));
  CHECK(torch::equal(x.index({x > 20}), torch::tensor({21, 22, 23})));
}

TEST_CASE("index_put_ writes through and carries gradients") {
  auto x = torch::zeros({3, 3});
  x.index_put_({Slice(), 1}, 7);
  x.index_put_({0, Slice(1, None)}, torch::tensor({1.0, 2.0}));
  CHECK(torch::equal(x, torch::tensor({{0.0, 1.0, 2.0}, {0.0, 7.0, 0.0}, {0.0, 7.0, 0.0}})));

  auto v = torch::tensor({1.0, 2.0}, torch::requires_grad());
  auto y = torch::zeros({2, 2});
  y.index_put_({0}, v * v);
  (y * torch::tensor({{10.0, 20.0}, {30.0, 40.0}})).sum().backward();
  CHECK(torch::equal(v.grad(), torch::tensor({20.0, 80.0})));
}

TEST_CASE("a view shares memory, and a change through it is seen by backward") {
  auto x = torch::ones({4}, torch::requires_grad());
  auto y = x * 2;
  auto half = y.slice(0, 0, 2);
  CHECK(half.is_view());
  half.mul_(5);
  CHECK(torch::equal(y.detach(), torch::tensor({10.0, 10.0, 2.0, 2.0})));
  y.sum().backward();
  CHECK(torch::equal(x.grad(), torch::tensor({10.0, 10.0, 2.0, 2.0})));
}

TEST_CASE("accessors read elements without tensors in between") {
  auto x = torch::arange(6, torch::kFloat32).reshape({2, 3});
  auto a = x.accessor<float, 2>();
  float sum = 0;
  for (int64_t i = 0; i < a.size(0); ++i)
    for (int64_t j = 0; j < a.size(1); ++j) sum += a[i][j];
  CHECK(sum == 15);
  CHECK(x.data_ptr<float>()[5] == 5);
}
