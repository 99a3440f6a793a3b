/// Joining tensors.
#include "tests/ops/values.h"

using namespace grapnel;

TEST_CASE("cat joins along any dimension") {
  const Tensor a = counting({2, 2}), b = counting({2, 1}) + 10.0;
  CHECK(values(cat({a, b}, 1)) == Values{0, 1, 10, 2, 3, 11});
  CHECK(values(cat({a, b.t()})) == Values{0, 1, 2, 3, 10, 11});
  CHECK(cat({a, a, a}, -1).shape() == Shape{2, 6});
  CHECK(cat({zeros({0, 2}), zeros({3, 2})}).shape() == Shape{3, 2});
  CHECK(values(cat({a.t(), a})) == Values{0, 2, 1, 3, 0, 1, 2, 3});
  CHECK(cat({a}).shape() == a.shape());
  CHECK(!cat({a}).is_alias_of(a));
}

TEST_CASE("an empty vector joins anything and adds nothing") {
  CHECK(cat({zeros({0}), counting({2, 2})}, 1).shape() == Shape{2, 2});
  CHECK(cat({zeros({0}), zeros({0})}).shape() == Shape{0});
}

TEST_CASE("cat and stack promote types") {
  CHECK(cat({tensor({1, 2}), tensor({0.5})}).dtype() == kFloat32);
  CHECK(stack({tensor({true}), tensor({2})}).dtype() == kInt64);
  const Tensor narrow = counting({2}, kFloat32).set_requires_grad(true);
  cat({narrow, counting({2})}).sum().backward();
  CHECK(narrow.grad().dtype() == kFloat32);
}

TEST_CASE("what cannot be joined is named") {
  const Tensor a = counting({2, 2});
  CHECK(contains(error_of([&] { cat({a, counting({3, 1})}, 1); }),
                 "cat: shapes may differ only in dimension 1, but tensor 0 is [2, 2] and tensor 1 "
                 "is [3, 1]."));
  CHECK(contains(error_of([&] { cat({a, counting({2})}); }), "tensor 1 is [2]"));
  CHECK(contains(error_of([&] { cat({scalar_tensor(1.0)}); }), "cat: tensor 0 is 0-dimensional"));
  CHECK(contains(error_of([&] { cat(TensorList()); }), "cat: the list of tensors is empty"));
  CHECK(contains(error_of([&] { cat({a, Tensor()}); }), "cat: tensor 1 of 2 is undefined."));
  CHECK(contains(error_of([&] { cat({a, a}, 2); }), "cat: dimension 2 is out of range"));
  CHECK(contains(
      error_of([&] { stack({a, counting({2})}); }),
      "stack: all tensors must have one shape, but tensor 0 is [2, 2] and tensor 1 is [2]."));
}

TEST_CASE("stack makes a new dimension") {
  const Tensor a = counting({2}), b = counting({2}) + 10.0;
  CHECK(values(stack({a, b})) == Values{0, 1, 10, 11});
  CHECK(values(stack({a, b}, -1)) == Values{0, 10, 1, 11});
  CHECK(stack({scalar_tensor(1.0), scalar_tensor(2.0)}).shape() == Shape{2});
  CHECK(stack({zeros({0, 2}), zeros({0, 2})}, 1).shape() == Shape{0, 2, 2});
}

TEST_CASE("gradients of joined tensors are their parts, also when some of them want none") {
  const Tensor a = counting({2}), b = counting({3}), c = counting({1});
  CHECK(gradient(b, [&](const Tensor& t) { return cat({a, t, c}); }) == Values{3, 4, 5});
  CHECK(gradient(c, [&](const Tensor& t) { return cat({a, b, t}); }) == Values{6});
  CHECK(gradient(a, [&](const Tensor& t) { return cat({t, b, t}); }) == Values{1 + 6, 2 + 7});
  CHECK(gradient(a, [&](const Tensor& t) { return stack({a, t}, 1); }) == Values{2, 4});
}

TEST_CASE("any number of tensors of any sizes can be joined") {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < 200; ++i)
    parts.push_back((counting({i % 7}) + static_cast<double>(100 * i)).set_requires_grad(true));
  const Tensor y = cat(parts);
  Values expected;
  for (const Tensor& p : parts)
    for (double v : values(p)) expected.push_back(v);
  CHECK(values(y) == expected);
  (y * (counting(y.sizes()) + 1.0)).sum().backward();
  double next = 1;
  for (const Tensor& p : parts)
    if (p.numel() > 0)
      for (double v : values(p.grad())) CHECK(v == next++);
}

TEST_CASE("broadcast_tensors gives all the same shape without copying") {
  const Tensor a = counting({3, 1}), b = counting({2});
  const auto out = broadcast_tensors(std::vector{a, b});
  CHECK(out[0].shape() == Shape{3, 2});
  CHECK(values(out[1]) == Values{0, 1, 0, 1, 0, 1});
  CHECK(out[1].is_alias_of(b));
  CHECK(contains(error_of([&] { broadcast_tensors(std::vector{counting({3}), b}); }),
                 "broadcast_tensors: shapes [3] and [2] do not broadcast"));
}
