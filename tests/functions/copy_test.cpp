/// Copies: clone, conversion, writing over, repeating, turning around.
#include "tests/ops/values.h"

using namespace grapnel;

TEST_CASE("clone has memory of its own, contiguous") {
  const Tensor x = counting({2, 3}).t(), y = x.clone();
  CHECK(y.is_contiguous());
  CHECK(!y.is_alias_of(x));
  CHECK(values(y) == values(x));
  CHECK(clone(scalar_tensor(3.0)).item<double>() == 3);
  CHECK(zeros({0, 2}).clone().shape() == Shape{0, 2});
}

TEST_CASE("contiguous and to return the tensor itself when there is nothing to do") {
  const Tensor x = counting({2, 3});
  CHECK(x.contiguous().is_same(x));
  CHECK(!x.t().contiguous().is_alias_of(x));
  CHECK(x.to(kFloat64).is_same(x));
  CHECK(x.to(Device(kCPU)).is_same(x));
  CHECK(x.to(TensorOptions(kInt32)).dtype() == kInt32);
  CHECK(values(tensor({1.75, -2.5}).to(kInt64)) == Values{1, -2});
  CHECK(values(tensor({0.0, 0.5}).to(kBool)) == Values{0, 1});
  CHECK(contains(error_of([&] { x.to(requires_grad()); }),
                 "to: requires_grad is not something to convert to."));
}

TEST_CASE("a gradient is converted back to the type it came from") {
  const Tensor x = counting({2}, kFloat32).set_requires_grad(true);
  x.to(kFloat64).sum().backward();
  CHECK(x.grad().dtype() == kFloat32);
  CHECK(!x.to(kInt64).requires_grad());
}

TEST_CASE("copy_ broadcasts and converts its source") {
  const Tensor x = zeros({2, 3}, kFloat64);
  x.copy_(tensor({1, 2, 3}));
  CHECK(values(x) == Values{1, 2, 3, 1, 2, 3});
  x.t().copy_(counting({3, 2}));
  CHECK(values(x) == Values{0, 2, 4, 1, 3, 5});
  CHECK(contains(error_of([&] { x.copy_(zeros({2})); }),
                 "copy_: a source of shape [2] does not broadcast to the target's shape [2, 3]."));
  CHECK(contains(error_of([&] { x[0].copy_(zeros({2, 3})); }), "copy_: a source of shape [2, 3]"));
}

TEST_CASE("copy_ from overlapping memory reads everything before it writes") {
  const Tensor x = counting({5});
  x.slice(0, 1).copy_(x.slice(0, 0, 4));
  CHECK(values(x) == Values{0, 0, 1, 2, 3});
  const Tensor square = counting({2, 2});
  square.copy_(square.t());
  CHECK(values(square) == Values{0, 2, 1, 3});
}

TEST_CASE("fill_ and zero_ write one value everywhere") {
  const Tensor x = empty({2, 2}, kInt32);
  CHECK(values(x.fill_(7)) == Values{7, 7, 7, 7});
  CHECK(values(x.select(1, 0).fill_(scalar_tensor(2.0))) == Values{2, 2});
  CHECK(values(x) == Values{2, 7, 2, 7});
  CHECK(values(x.zero_()) == Values{0, 0, 0, 0});
  CHECK(contains(error_of([&] { x.fill_(zeros({2})); }),
                 "fill_: the value must be a number or a 0-dimensional tensor, got shape [2]."));
}

TEST_CASE("what was overwritten gets a zero gradient, what was written gets its own") {
  const Tensor a = counting({2, 2}).set_requires_grad(true),
               b = counting({2}).set_requires_grad(true);
  const Tensor y = a * 1.0;
  y.copy_(b);
  (y * tensor({{1.0, 2.0}, {3.0, 4.0}}, kFloat64)).sum().backward();
  CHECK(values(a.grad()) == Values{0, 0, 0, 0});
  CHECK(values(b.grad()) == Values{4, 6});
}

TEST_CASE("writing to a part changes the gradient of that part only") {
  const Tensor a = counting({2, 2}).set_requires_grad(true),
               v = scalar_tensor(5.0, kFloat64).set_requires_grad(true);
  const Tensor y = a * 1.0;
  y.select(0, 1).fill_(v);
  (y * tensor({{1.0, 2.0}, {3.0, 4.0}}, kFloat64)).sum().backward();
  CHECK(values(a.grad()) == Values{1, 2, 0, 0});
  CHECK(v.grad().item<double>() == 7);
}

TEST_CASE("repeat tiles, and counts in front add dimensions") {
  const Tensor x = counting({2});
  CHECK(values(x.repeat({2})) == Values{0, 1, 0, 1});
  CHECK(x.repeat({2, 3}).shape() == Shape{2, 6});
  CHECK(values(counting({2, 2}).repeat({1, 2})) == Values{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(values(counting({2, 2}).repeat({2, 1})) == Values{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(x.repeat({0}).shape() == Shape{0});
  CHECK(!x.repeat({1}).is_alias_of(x));
  CHECK(counting({1, 2}).repeat({3, 2}).is_contiguous());
  CHECK(values(scalar_tensor(4.0).repeat({2})) == Values{4, 4});
  CHECK(gradient(x, [](const Tensor& t) { return t.repeat({2, 2}); }) ==
        Values{1 + 3 + 5 + 7, 2 + 4 + 6 + 8});
  CHECK(contains(error_of([&] { counting({2, 2}).repeat({2}); }),
                 "repeat: [2] has 1 counts, but the tensor has 2 dimensions"));
  CHECK(contains(error_of([&] { x.repeat({-1}); }), "counts must not be negative"));
}

TEST_CASE("flip turns dimensions around") {
  const Tensor x = counting({2, 3});
  CHECK(values(x.flip({1})) == Values{2, 1, 0, 5, 4, 3});
  CHECK(values(flip(x, {0, -1})) == Values{5, 4, 3, 2, 1, 0});
  CHECK(values(x.t().flip({0})) == Values{2, 5, 1, 4, 0, 3});
  CHECK(values(x.flip({})) == values(x));
  CHECK(zeros({0}).flip({0}).shape() == Shape{0});
  CHECK(scalar_tensor(2.0).flip({0}).item<double>() == 2);
  CHECK(gradient(x, [](const Tensor& t) { return t.flip({1}); }) == Values{3, 2, 1, 6, 5, 4});
  CHECK(contains(error_of([&] { x.flip({0, 0}); }), "flip: dimension 0 appears twice"));
}

TEST_CASE("roll moves elements around the end") {
  const Tensor x = counting({5});
  CHECK(values(x.roll(2, 0)) == Values{3, 4, 0, 1, 2});
  CHECK(values(x.roll(-1, 0)) == Values{1, 2, 3, 4, 0});
  CHECK(values(x.roll(12, 0)) == Values{3, 4, 0, 1, 2});
  CHECK(values(counting({2, 2}).roll(1, -1)) == Values{1, 0, 3, 2});
  CHECK(!x.roll(0, 0).is_alias_of(x));
  CHECK(zeros({0}).roll(3, 0).shape() == Shape{0});
  CHECK(gradient(x, [](const Tensor& t) { return t.roll(1, 0); }) == Values{2, 3, 4, 5, 1});
}
