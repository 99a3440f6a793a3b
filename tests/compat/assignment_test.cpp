// LibTorch-style programs that assign to temporaries (x[0] = y writes) and to names (a = b rebinds).
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "grapnel/compat/torch.h"

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;

namespace {

struct State {
  Tensor h, c;
  std::optional<Tensor> mask;
};

std::tuple<Tensor, Tensor> pair_of(const Tensor& a, const Tensor& b) { return {a, b}; }

}  // namespace

TEST_CASE("an assignment to an element, a row or a block writes to the tensor") {
  auto x = torch::zeros({3, 4});
  const auto same = x;
  x[0] = torch::ones({4});
  x[1][2] = 5;
  x.select(1, 3) = torch::tensor({7.0, 8.0, 9.0});
  x.index({Slice(1, None), 0}) = -1;
  x.narrow(0, 2, 1).slice(1, 1, 3) = torch::full({2}, 2.5);
  CHECK(torch::equal(
      x, torch::tensor({{1.0, 1.0, 1.0, 7.0}, {-1.0, 0.0, 5.0, 8.0}, {-1.0, 2.5, 2.5, 9.0}})));
  CHECK(x.is_same(same));
}

TEST_CASE("in-place operators on a temporary write, too") {
  auto x = torch::ones({2, 3});
  x[0] += 1;
  x[0] *= torch::tensor({1.0, 2.0, 3.0});
  x.select(1, 1) -= 0.5;
  x.index({1, Slice(0, 2)}) /= 4;
  x[1] += x[0];
  CHECK(torch::equal(x, torch::tensor({{2.0, 3.5, 6.0}, {2.25, 3.625, 7.0}})));
}

TEST_CASE("what is assigned is broadcast and converted, and the write counts as a version") {
  auto x = torch::zeros({2, 3}, torch::kDouble);
  const auto version = x._version();
  x.index({Slice(), Slice(1, None)}) = torch::tensor({1.5F, 2.5F});
  x[0][0] = true;
  CHECK(torch::equal(x, torch::tensor({{1.0, 1.5, 2.5}, {0.0, 1.5, 2.5}}, torch::kDouble)));
  CHECK(x._version() == version + 2);
  CHECK_THROWS_AS((x[0] = torch::ones({2})), c10::Error);
}

TEST_CASE("gradients flow through what was assigned") {
  auto w = torch::tensor({1.0, 2.0}, torch::requires_grad());
  auto y = torch::zeros({3, 2});
  y[0] = w * w;
  y[1] += 3 * w;
  y.index({2, 0}) = w[1];
  y[0][1] *= 10;
  (y * torch::tensor({{1.0, 2.0}, {10.0, 20.0}, {100.0, 200.0}})).sum().backward();
  CHECK(torch::equal(w.grad(), torch::tensor({2.0 + 30.0, 80.0 + 60.0 + 100.0})));
}

TEST_CASE("a leaf that requires grad can be assigned to under NoGradGuard only") {
  auto w = torch::ones({2}, torch::requires_grad());
  CHECK_THROWS_AS((w[0] = 5), c10::Error);
  CHECK_THROWS_AS((w[0] += 5), c10::Error);
  CHECK(torch::equal(w.detach(), torch::ones({2})));
  torch::NoGradGuard no_grad;
  w[0] = 5;
  w[1] += 5;
  CHECK(torch::equal(w, torch::tensor({5.0, 6.0})));
}

TEST_CASE("a tensor with a name becomes another one, whatever assigns") {
  auto a = torch::zeros({2}), b = torch::ones({2});
  const auto zeros = a, ones = b;
  a = b;
  CHECK(a.is_same(ones));
  CHECK(torch::equal(zeros, torch::zeros({2})));
  std::tie(a, b) = pair_of(zeros, ones);
  CHECK((a.is_same(zeros) && b.is_same(ones)));
  std::pair<Tensor&, Tensor&>(a, b) = std::make_pair(ones, zeros);
  CHECK((a.is_same(ones) && b.is_same(zeros)));
  std::swap(a, b);
  CHECK((a.is_same(zeros) && b.is_same(ones)));
  CHECK(std::exchange(a, ones).is_same(zeros));
  CHECK(a.is_same(ones));
  auto row = zeros[0];
  row = ones[1];
  a = Tensor();
  CHECK(!a.defined());
  CHECK(torch::equal(zeros, torch::zeros({2})));
  CHECK(torch::equal(ones, torch::ones({2})));
}

TEST_CASE("lists, optionals and structs of tensors move handles, not values") {
  const auto one = torch::tensor({1.0}), two = torch::tensor({2.0}), three = torch::tensor({3.0});
  std::vector<Tensor> list{three, one, two};
  std::sort(list.begin(), list.end(),
            [](const Tensor& a, const Tensor& b) { return a.item<float>() < b.item<float>(); });
  CHECK((list[0].is_same(one) && list[1].is_same(two) && list[2].is_same(three)));
  list.erase(list.begin());
  list.insert(list.begin(), three);
  CHECK((list[0].is_same(three) && list[1].is_same(two) && list[2].is_same(three)));
  std::optional<Tensor> maybe = one;
  maybe = two;
  CHECK(maybe->is_same(two));
  State s{one, two, three}, t{two, one, std::nullopt};
  s = t;
  CHECK((s.h.is_same(two) && s.c.is_same(one) && !s.mask));
  t = State{three, three, one};
  CHECK((t.h.is_same(three) && t.mask->is_same(one)));
  std::tie(s.h, s.c) = pair_of(s.c, s.h);
  CHECK((s.h.is_same(one) && s.c.is_same(two)));
  CHECK((one.item<float>() == 1 && two.item<float>() == 2 && three.item<float>() == 3));
}

TEST_CASE("std::move says that a name is not needed any more, so its elements are written") {
  auto a = torch::zeros({2});
  const auto same = a;
  std::move(a) = torch::ones({2});
  CHECK(a.is_same(same));
  CHECK(torch::equal(same, torch::ones({2})));
  Tensor undefined;
  CHECK_THROWS_AS((std::move(undefined) = a), c10::Error);
  CHECK_THROWS_AS((Tensor() = 1), c10::Error);
  CHECK_THROWS_AS((a[0] = Tensor()), c10::Error);
}

TEST_CASE("pooling written with indices gives the maxima") {
  const auto x = torch::arange(9, torch::kFloat32).view({3, 3});
  auto y = torch::zeros({2, 2});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j) y[i][j] = x.index({Slice(i, i + 2), Slice(j, j + 2)}).max();
  CHECK(torch::equal(y, torch::tensor({{4.0, 5.0}, {7.0, 8.0}})));
}

TEST_CASE("a recurrent loop that fills its result row by row trains") {
  auto w = torch::eye(2, torch::requires_grad());
  const auto x = torch::ones({3, 2});
  auto out = torch::empty({3, 2});
  auto h = torch::zeros({2});
  for (int64_t t = 0; t < 3; ++t) {
    h = h + w.mv(x[t]);
    out[t] = h;
  }
  out.sum().backward();
  CHECK(torch::equal(out.detach(), torch::tensor({{1.0, 1.0}, {2.0, 2.0}, {3.0, 3.0}})));
  CHECK(torch::equal(w.grad(), torch::full({2, 2}, 6.0)));
}
