/// Assignment to copies: masks, positions, and what cannot be assigned to.
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/tensor/tensor_index.h"
#include "tests/ops/values.h"

using namespace grapnel;
using namespace grapnel::indexing;

namespace {
struct Pair {
  Tensor first;
  std::optional<Tensor> second;
};
}  // namespace
static_assert(std::is_nothrow_copy_assignable_v<Tensor>);
static_assert(std::is_nothrow_move_assignable_v<Tensor>);
static_assert(std::is_nothrow_move_constructible_v<Tensor>);
static_assert(std::is_nothrow_move_assignable_v<Pair>);
static_assert(std::is_nothrow_swappable_v<Tensor>);
static_assert(!std::is_assignable_v<const Tensor&, Tensor>);
static_assert(!std::is_assignable_v<Tensor&, double>);  // a number is written to a temporary only

TEST_CASE("an empty list in braces makes a tensor undefined") {
  Tensor a = ones({2});
  a = {};
  CHECK(!a.defined());
}

TEST_CASE("an assignment through a mask or positions writes to the tensor") {
  Tensor x = counting({2, 3});
  x.index({x > 3}) = -1;
  CHECK(values(x) == Values{0, 1, 2, 3, -1, -1});
  x.index({1, tensor({2, 0})}) = tensor({7.0, 8.0}, kFloat64);
  CHECK(values(x) == Values{0, 1, 2, 8, -1, 7});
  x[x == -1] = 5;
  x[tensor({0})] = tensor({9, 9, 9});
  CHECK(values(x) == Values{9, 9, 9, 8, 5, 7});
  x.index({Slice(), tensor({0, 2})}) = tensor({{1.0}, {2.0}});
  CHECK(values(x) == Values{1, 9, 1, 2, 5, 2});
  x[tensor(1)] = 0;
  CHECK(values(x) == Values{1, 9, 1, 0, 0, 0});
  const std::vector<TensorIndex> place = {0, tensor({1})};
  x.index(place) = 4;
  CHECK(values(x) == Values{1, 4, 1, 0, 0, 0});
  x.index({x > 100}) = 3;
  CHECK(values(x) == Values{1, 4, 1, 0, 0, 0});
}

TEST_CASE("in-place operators through a mask or positions write to the tensor") {
  Tensor x = counting({4});
  const uint32_t version = x._version();
  x.index({x > 1}) += 10;
  CHECK(values(x) == Values{0, 1, 12, 13});
  CHECK(x._version() == version + 1);
  x[tensor({0, 0, 1})] -=
      tensor({1.0, 1.0, 2.0});  // the same place twice counts once, as in Python
  CHECK(values(x) == Values{-1, -1, 12, 13});
  x.index({x < 0}) *= 3;
  x.index({tensor({3})}) /= 2;
  CHECK(values(x) == Values{-3, -3, 12, 6.5});
}

TEST_CASE("gradients flow to what was assigned, and not to what was there") {
  const Tensor a = tensor({1.0, 2.0, 3.0}, kFloat64).set_requires_grad(true);
  const Tensor v = tensor({5.0, 6.0}, kFloat64).set_requires_grad(true);
  Tensor y = a * 2;
  y.index({tensor({2, 0})}) = v * v;
  (y * tensor({1.0, 10.0, 100.0}, kFloat64)).sum().backward();
  CHECK(values(a.grad()) == Values{0, 20, 0});
  CHECK(values(v.grad()) == Values{1000, 12});

  a.reset_grad();
  v.reset_grad();
  Tensor z = a * 2;
  z[z > 3] *= v;
  (z * tensor({1.0, 10.0, 100.0}, kFloat64)).sum().backward();
  CHECK(values(a.grad()) == Values{2, 100, 1200});
  CHECK(values(v.grad()) == Values{40, 600});
}

TEST_CASE("the value of an assignment is what was assigned") {
  Tensor x = counting({4});
  const Tensor y = (x.index({x > 1}) = 3);
  CHECK(values(y) == Values{3, 3});
  CHECK(values((x.index({x < 1}) += 7)) == Values{7});
  CHECK(values(x) == Values{7, 1, 3, 3});
}

TEST_CASE("a copy with a name is a tensor of its own") {
  Tensor x = counting({3});
  const size_t owners = x.use_count();
  Tensor y = x.index({x > 0});
  CHECK(x.use_count() == owners);
  y[0] = 10;
  std::move(y) = tensor({20, 30});
  CHECK(values(y) == Values{20, 30});
  y = x.index({tensor({0})});
  y += 1;
  CHECK(values(x) == Values{0, 1, 2});
  // Calls in between have their own expressions.
  const auto changed = [](Tensor t) {
    Tensor u = t.index({t < 0});
    t[0] = -5;
    t.index({t == 2}) = 50;
    return t;
  };
  x.index({tensor({0, 1})}) = changed(x.index({tensor({1, 2})}));
  CHECK(values(x) == Values{-5, 50, 2});
}

TEST_CASE("tensors made within the expression are not taken for the copy") {
  Tensor x = counting({3}), y = zeros({3}, kFloat64);
  const auto consume = [&](Tensor t) {
    t = Tensor();  // the header of a tensor that is gone is used again by the next
    for (int i = 0; i < 3; ++i) y[i] = 1;
    return zeros({1}, kFloat64);
  };
  x.index({tensor({0})}) = consume(x.index({tensor({1, 2})})) - 7;
  CHECK(values(x) == Values{-7, 1, 2});
  CHECK(values(y) == Values{1, 1, 1});
}

TEST_CASE("what gather, index_select and masked_select picked out cannot be assigned to") {
  const Tensor x = counting({2, 2});
  for (const std::string& message : {error_of([&] { x.index_select(0, tensor({1})) = 1; }),
                                     error_of([&] { x.masked_select(x > 1) = x; }),
                                     error_of([&] { gather(x, 0, tensor({{0, 1}})) = 1; }),
                                     error_of([&] { x.masked_select(x > 1) += 1; })}) {
    CAPTURE(message);
    CHECK(contains(message, "would be lost"));
    CHECK(contains(message, "x.index({mask}) = values"));
  }
  CHECK(values(x) == Values{0, 1, 2, 3});
  Tensor rows = x.index_select(0, tensor({1}));
  rows += 1;
  rows[0][0] = 9;
  CHECK(values(rows) == Values{9, 4});
}

TEST_CASE("an assignment that cannot be is an error and writes nothing") {
  Tensor x = counting({3});
  CHECK(contains(error_of([&] { Tensor() = x; }), "the temporary on the left is undefined"));
  CHECK(contains(error_of([&] { Tensor() += x; }), "the temporary on the left is undefined"));
  CHECK(contains(error_of([&] { x.index({x > 0}) = tensor({1.0, 2.0, 3.0}); }),
                 "does not broadcast"));
  CHECK(contains(error_of([&] { x[0] = tensor({1.0, 2.0}); }), "does not broadcast"));
  CHECK(error_of([&] { x[0] = Tensor(); }) != "no error");
  CHECK(values(x) == Values{0, 1, 2});
  const Tensor leaf = counting({3}).set_requires_grad(true);
  CHECK(contains(error_of([&] { leaf.index({tensor({0})}) = 1; }), "a leaf that requires grad"));
  CHECK(values(leaf) == Values{0, 1, 2});
}

TEST_CASE("an expression may end on another thread, as those of coroutines do") {
  Tensor x = counting({3});
  const Tensor at = tensor({1});
  auto argument = std::make_unique<IndexTensor>(at);
  const Tensor copy = x[*argument];
  std::thread([&] { argument.reset(); }).join();
  x[tensor({0})] = 7;
  CHECK(values(copy) == Values{1});
  CHECK(values(x) == Values{7, 1, 2});
}
