/// Views: where they lie, what they share, what they refuse.
#include "grapnel/ops/defs/view.h"

#include "grapnel/autograd/node.h"
#include "tests/ops/values.h"

using namespace grapnel;

TEST_CASE("a view shares memory with what it views") {
  const Tensor x = counting({2, 3});
  const Tensor views[] = {
      x.view({3, 2}), x.transpose(0, 1),      x.permute({1, 0}), x.expand({4, 2, 3}),
      x.squeeze(),    x.unsqueeze(1),         x.slice(1, 1),     x.select(0, 1),
      x.diagonal(),   x.as_strided({2}, {2}), x.narrow(0, 1, 1), x.t(),
      x.flatten(),    x.movedim(0, 1),        x.unbind(0)[1]};
  for (const Tensor& v : views) {
    CHECK(v.is_alias_of(x));
    CHECK(v.is_view());
    CHECK(!v.is_same(x));
  }
  x.select(1, 0).fill_(9);
  CHECK(values(x) == Values{9, 1, 2, 9, 4, 5});
  CHECK(views[0]._version() == x._version());
}

TEST_CASE("view finds one unknown size and keeps the order of elements") {
  const Tensor x = counting({2, 3, 4});
  CHECK(x.view({-1, 6}).shape() == Shape{4, 6});
  CHECK(x.view({24}).shape() == Shape{24});
  CHECK(values(x.view({4, 6})) == values(x));
  CHECK(zeros({0, 3}).view({-1, 1}).shape() == Shape{0, 1});
  CHECK(scalar_tensor(5.0).view({1, 1}).shape() == Shape{1, 1});
  CHECK(counting({1}).view({}).shape() == Shape{});
  CHECK(contains(error_of([&] { x.view({5, 5}); }),
                 "view: [5, 5] has 25 elements but the tensor has 24."));
  CHECK(contains(error_of([&] { x.view({-1, -1}); }), "only one size may be -1"));
}

TEST_CASE("view refuses what needs a copy, and reshape copies then") {
  const Tensor x = counting({2, 3}).t();
  const std::string message = error_of([&] { x.view({6}); });
  CHECK(contains(
      message,
      "view: a tensor of shape [3, 2] and strides [1, 3] cannot be seen as [6] without copying."));
  CHECK(contains(message, "Use reshape"));
  const Tensor copied = x.reshape({6});
  CHECK(values(copied) == Values{0, 3, 1, 4, 2, 5});
  CHECK(!copied.is_alias_of(x));
  CHECK(counting({2, 3}).reshape({-1}).is_contiguous());
}

TEST_CASE("flatten and unflatten are each other's inverse") {
  const Tensor x = counting({2, 3, 4});
  CHECK(x.flatten().shape() == Shape{24});
  CHECK(x.flatten(1).shape() == Shape{2, 12});
  CHECK(x.flatten(0, -2).shape() == Shape{6, 4});
  CHECK(x.flatten(1, 1).is_same(x));
  CHECK(scalar_tensor(1.0).flatten().shape() == Shape{1});
  CHECK(values(x.flatten(1).unflatten(1, {3, -1})) == values(x));
  CHECK(x.flatten(1).unflatten(-1, {3, -1}).shape() == x.shape());
  CHECK(contains(error_of([&] { x.flatten(2, 1); }), "start_dim 2 comes after end_dim 1"));
}

TEST_CASE("transpose, t and permute move dimensions, counted from either end") {
  const Tensor x = counting({2, 3, 4});
  CHECK(x.transpose(-1, 0).shape() == Shape{4, 3, 2});
  CHECK(x.permute({2, 0, -2}).shape() == Shape{4, 2, 3});
  CHECK(values(x.permute({2, 0, 1}).select(0, 1)) == Values{1, 5, 9, 13, 17, 21});
  CHECK(x.movedim(0, -1).shape() == Shape{3, 4, 2});
  CHECK(x.mT().shape() == Shape{2, 4, 3});
  CHECK(counting({3}).t().shape() == Shape{3});
  CHECK(scalar_tensor(1.0).transpose(0, -1).shape() == Shape{});
  CHECK(scalar_tensor(1.0).movedim(0, 0).shape() == Shape{});
  CHECK(contains(error_of([&] { x.t(); }), "t: a matrix is expected, got shape [2, 3, 4]."));
  CHECK(contains(error_of([&] { x.permute({0, 0, 1}); }),
                 "permute: dimension 0 appears twice in [0, 0, 1]."));
  CHECK(contains(error_of([&] { x.permute({0, 1}); }), "names 2 dimensions, but the tensor has 3"));
  CHECK(contains(error_of([&] { x.transpose(0, 3); }), "transpose: dimension 3 is out of range"));
}

TEST_CASE("expand repeats without copying") {
  const Tensor x = counting({3, 1});
  CHECK(x.expand({2, -1, 4}).shape() == Shape{2, 3, 4});
  CHECK(x.expand({2, -1, 4}).strides() == Shape{0, 1, 0});
  CHECK(values(x.expand({-1, 2})) == Values{0, 0, 1, 1, 2, 2});
  CHECK(counting({1}).expand({0}).numel() == 0);
  CHECK(contains(error_of([&] { x.expand({4, 4}); }),
                 "expand: size 3 cannot become 4 at dimension 0 (from [3, 1] to [4, 4])."));
  CHECK(contains(error_of([&] { x.expand({-1, 3, 1}); }),
                 "-1 keeps a size, but dimension 0 of [-1, 3, 1] is new"));
  CHECK(contains(error_of([&] { x.expand({3}); }), "fewer dimensions than the tensor"));
  CHECK(contains(error_of([&] { x.expand({3, 2}).fill_(1); }), "share memory"));
}

TEST_CASE("squeeze drops dimensions of size 1 and no others") {
  const Tensor x = counting({1, 3, 1, 2});
  CHECK(x.squeeze().shape() == Shape{3, 2});
  CHECK(x.squeeze(-2).shape() == Shape{1, 3, 2});
  CHECK(x.squeeze(1).shape() == x.shape());
  CHECK(scalar_tensor(1.0).squeeze(0).shape() == Shape{});
  CHECK(x.unsqueeze(-1).shape() == Shape{1, 3, 1, 2, 1});
  CHECK(x.unsqueeze(4).shape() == Shape{1, 3, 1, 2, 1});
  CHECK(scalar_tensor(1.0).unsqueeze(0).shape() == Shape{1});
  CHECK(contains(
      error_of([&] { x.unsqueeze(6); }),
      "unsqueeze: position 6 is out of range; a tensor of shape [1, 3, 1, 2] accepts -5 to 4."));
}

TEST_CASE(
    "slice cuts bounds off, counts negative ones from the end and refuses steps that do not "
    "advance") {
  const Tensor x = counting({5});
  CHECK(values(x.slice(0, 1, 4)) == Values{1, 2, 3});
  CHECK(values(x.slice(0, -2)) == Values{3, 4});
  CHECK(values(x.slice(0, {}, -2)) == Values{0, 1, 2});
  CHECK(values(x.slice(0, 0, 100, 2)) == Values{0, 2, 4});
  CHECK(values(x.slice(0, 4, 1)).empty());
  CHECK(values(x.slice(-1, -100, 1)) == Values{0});
  CHECK(
      contains(error_of([&] { x.slice(0, 0, 3, 0); }), "slice: the step must be positive, got 0."));
  CHECK(contains(error_of([&] { scalar_tensor(1.0).slice(); }),
                 "slice: the tensor is 0-dimensional"));
}

TEST_CASE("select and narrow check their range") {
  const Tensor x = counting({3, 4});
  CHECK(values(x[-1]) == Values{8, 9, 10, 11});
  CHECK(values(x.select(1, 2)) == Values{2, 6, 10});
  CHECK(values(x.narrow(1, -2, 2)) == Values{2, 3, 6, 7, 10, 11});
  CHECK(x.narrow(0, 3, 0).shape() == Shape{0, 4});
  CHECK(
      contains(error_of([&] { x.select(0, 3); }),
               "select: index 3 is out of range for dimension 0 with size 3; it accepts -3 to 2."));
  CHECK(contains(error_of([&] { zeros({0})[0]; }),
                 "select: index 0 of dimension 0, which has size 0"));
  CHECK(contains(error_of([&] { x.narrow(0, 2, 2); }),
                 "narrow: 2 elements from 2 on do not fit in dimension 0 with size 3."));
  CHECK(contains(error_of([&] { scalar_tensor(1.0)[0]; }), "select: the tensor is 0-dimensional"));
}

TEST_CASE("diagonal takes any two dimensions and any offset") {
  const Tensor x = counting({3, 4});
  CHECK(values(x.diagonal()) == Values{0, 5, 10});
  CHECK(values(x.diagonal(1)) == Values{1, 6, 11});
  CHECK(values(x.diagonal(-1)) == Values{4, 9});
  CHECK(x.diagonal(7).shape() == Shape{0});
  CHECK(values(counting({2, 3, 2}).diagonal(0, 0, 2)) == Values{0, 7, 2, 9, 4, 11});
  CHECK(values(counting({2, 3, 2}).diagonal(0, -1, 0)) == Values{0, 7, 2, 9, 4, 11});
  CHECK(contains(error_of([&] { x.diagonal(0, 1, -1); }),
                 "dim1 and dim2 must differ, both are dimension 1"));
}

TEST_CASE("as_strided sees any layout inside the storage and none outside") {
  const Tensor x = counting({6});
  CHECK(values(x.as_strided({2, 2}, {3, 1}, 1)) == Values{1, 2, 4, 5});
  CHECK(values(x.as_strided({3, 2}, {1, 1})) == Values{0, 1, 1, 2, 2, 3});
  CHECK(x.slice(0, 2).as_strided({1}, {1}).item<double>() == 2);
  CHECK(
      contains(error_of([&] { x.as_strided({4}, {3}); }), "reach element 9, but the storage has"));
  CHECK(contains(error_of([&] { x.as_strided({2}, {-1}, 3); }), "strides must not be negative"));
  CHECK(contains(error_of([&] { x.as_strided({2}, {1, 1}); }), "1 sizes [2] but 2 strides [1, 1]"));
}

TEST_CASE("unbind, split and chunk cover a dimension") {
  const Tensor x = counting({5, 2});
  CHECK(x.unbind(1).size() == 2);
  CHECK(values(x.unbind(-1)[1]) == Values{1, 3, 5, 7, 9});
  const auto parts = x.split(2);
  REQUIRE(parts.size() == 3);
  CHECK(parts[2].shape() == Shape{1, 2});
  CHECK(values(x.split_with_sizes({1, 0, 4})[2]) == Values{2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(x.chunk(3).size() == 3);
  CHECK(x.chunk(4).size() == 3);  // parts of 2, 2 and 1: as many as are needed
  CHECK(zeros({0, 2}).chunk(3).size() == 3);
  CHECK(zeros({0, 2}).split(0).size() == 1);
  CHECK(zeros({0, 2}).unbind(0).empty());
  const auto many = counting({20}).split_with_sizes(std::vector<int64_t>(20, 1));
  REQUIRE(many.size() == 20);
  CHECK(values(many[13]) == Values{13});
  CHECK(contains(error_of([&] { x.split(0); }),
                 "parts of size 0 cannot cover dimension 0 with size 5"));
  CHECK(contains(error_of([&] { x.split_with_sizes({1, 2}); }),
                 "the sizes [1, 2] add up to 3, but dimension 0 has size 5"));
  CHECK(contains(error_of([&] { x.chunk(0); }), "the number of chunks must be positive"));
}

TEST_CASE("gradients of views return to where the view lies") {
  const Tensor x = counting({2, 3});
  CHECK(gradient(x, [](const Tensor& t) { return t.t(); }) == Values{1, 3, 5, 2, 4, 6});
  CHECK(gradient(x, [](const Tensor& t) { return t.select(1, 1); }) == Values{0, 1, 0, 0, 2, 0});
  CHECK(gradient(x, [](const Tensor& t) { return t.slice(1, 0, 3, 2); }) ==
        Values{1, 0, 2, 3, 0, 4});
  CHECK(gradient(x, [](const Tensor& t) { return t.diagonal(1); }) == Values{0, 1, 0, 0, 0, 2});
  CHECK(gradient(x, [](const Tensor& t) { return t.expand({2, 2, 3}); }) ==
        Values{8, 10, 12, 14, 16, 18});
  CHECK(gradient(x, [](const Tensor& t) {
          return t.permute({1, 0}).unsqueeze(0).squeeze(0).flatten();
        }) == Values{1, 3, 5, 2, 4, 6});
}

TEST_CASE("the gradient of as_strided adds where the view overlaps itself") {
  CHECK(gradient(counting({4}), [](const Tensor& t) { return t.as_strided({2, 3}, {1, 1}); }) ==
        Values{1, 6, 8, 6});
  // An expanded base holds each element three times, and the gradient is shared among them.
  CHECK(gradient(counting({1}),
                 [](const Tensor& t) { return t.expand({3}).as_strided({2}, {0}); }) == Values{3});
  CHECK(gradient(counting({2, 3}), [](const Tensor& t) { return t.t().as_strided({2}, {4}, 1); }) ==
        Values{0, 1, 0, 0, 0, 2});
}

TEST_CASE("outputs of unbind and split without a gradient count as zero") {
  const Tensor x = counting({3, 2});
  CHECK(gradient(x, [](const Tensor& t) { return t.unbind(0)[1]; }) == Values{0, 0, 1, 2, 0, 0});
  CHECK(gradient(x, [](const Tensor& t) { return t.unbind(1)[0] * t.unbind(1)[0]; }) ==
        Values{0, 0, 8, 0, 24, 0});
  CHECK(gradient(x, [](const Tensor& t) { return t.split(2)[1]; }) == Values{0, 0, 0, 0, 1, 2});
  CHECK(gradient(x, [](const Tensor& t) { return t.split_with_sizes({1, 2})[0]; }) ==
        Values{1, 2, 0, 0, 0, 0});
  const Tensor leaf = counting({3, 2}).set_requires_grad(true);
  const auto parts = leaf.unbind(0);
  CHECK(parts[0].grad_fn() == parts[2].grad_fn());
  CHECK(parts[2].output_nr() == 2);
}

TEST_CASE("as_strided_scatter writes into a copy of the base, whatever its layout") {
  const Tensor base = counting({2, 3}).t();  // shape [3, 2], strides [1, 3]
  const Geometry where{{2}, {3}, 1};  // elements 1 and 4 of the storage: base[1][0] and base[1][1]
  const Tensor out =
      as_strided_scatter(base, tensor({10.0, 20.0}, kFloat64), geometry_of(base), where);
  CHECK(values(out) == Values{0, 3, 10, 20, 2, 5});
  CHECK(values(base) == Values{0, 3, 1, 4, 2, 5});
  CHECK(values(as_strided_copy(base, geometry_of(base), where)) == Values{1, 4});
  CHECK(values(as_strided_backward(tensor({10.0, 20.0}, kFloat64), geometry_of(base), where)) ==
        Values{0, 0, 10, 20, 0, 0});
}
