#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE("eager.A1: post-accumulate hooks are for leaves that require grad") {
  auto hook = [](const Tensor&) {};
  CHECK_ERROR(constant(1.0).register_post_accumulate_grad_hook(hook), "does not require grad");
  CHECK_ERROR((leaf(1) * 2).register_post_accumulate_grad_hook(hook), "only leaves accumulate");
}

TEST_CASE("eager.A2: the hook gets the leaf, whose grad() already holds everything") {
  auto x = leaf(1);
  x.set_grad(constant(10.0));
  x.register_post_accumulate_grad_hook([&](const Tensor& l) {
    CHECK(l.is_same(x));
    CHECK(value(l.grad()) == 13);
  });
  (x * 3).backward();
}

TEST_CASE("eager.A3: it fires once per pass, after all uses were summed") {
  auto p = leaf(1);
  std::vector<double> seen;
  p.register_post_accumulate_grad_hook([&](const Tensor& l) { seen.push_back(value(l.grad())); });
  (p * 2 + p * 3).backward();
  CHECK(seen == Values{5});
}

TEST_CASE("eager.A4: several hooks run in order of registration") {
  auto t = leaf(0.5);
  t.register_post_accumulate_grad_hook([](const Tensor& l) { l.sub_(l.grad()); });
  t.register_post_accumulate_grad_hook([](const Tensor& l) { l.mul_(4); });
  t.sum().backward();
  CHECK(value(t) == -2);
}

TEST_CASE("eager.A5: a post-accumulate hook that returns a value does not compile") {
  auto returns = [](const Tensor& l) { return l.grad(); };
  static_assert(!std::is_void_v<std::invoke_result_t<decltype(returns)&, const Tensor&>>);
}

TEST_CASE("eager.A6: it is called exactly when grad() was written") {
  auto x = leaf(1);
  int calls = 0;
  x.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  autograd::grad({x * 2}, {x});
  CHECK(calls == 0);
  auto y = x * 2;
  x.set_requires_grad(false);
  y.backward();
  CHECK(calls == 0);
  x.set_requires_grad(true);
  (x * 2).backward();
  CHECK(calls == 1);
}

TEST_CASE("eager.A7: the hook keeps its captures alive exactly as long as the leaf") {
  auto captured = std::make_shared<int>(0);
  std::weak_ptr<int> watch = captured;
  {
    auto x = leaf(1);
    x.register_post_accumulate_grad_hook([captured](const Tensor&) { ++*captured; });
    captured.reset();
    (x * 2).backward();
    (x * 2).backward();
    CHECK(*watch.lock() == 2);
  }
  CHECK(watch.expired());
}

TEST_CASE("eager.A8: it runs between the node's pre-hooks and post-hooks") {
  auto x = leaf(1);
  std::string log;
  x.register_post_accumulate_grad_hook([&](const Tensor&) { log += "a"; });
  grad_accumulator(x)->register_hook(
      [&](const variable_list&, const variable_list&) { log += "q"; });
  grad_accumulator(x)->register_prehook([&](const variable_list&) { log += "p"; });
  x.register_hook([&](const Tensor&) { log += "t"; });
  (x * 2).backward();
  CHECK(log == "tpaq");
}

TEST_CASE("eager.A9: a leaf takes any number of post-accumulate hooks, with handles") {
  auto x = leaf(1);
  int calls = 0;
  std::vector<HookHandle> handles;
  for (int i = 0; i < 10; ++i)
    handles.push_back(x.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; }));
  (x * 2).backward();
  CHECK(calls == 10);
  handles[3].remove();
  (x * 2).backward();
  CHECK(calls == 19);
}

TEST_CASE("eager.A10: a hook may start a pass that reaches the same leaf") {
  auto x = leaf(1);
  int calls = 0;
  x.register_post_accumulate_grad_hook([&](const Tensor& l) {
    if (++calls == 1) {
      EnableGradGuard grad;
      (l * 10).backward();
    }
  });
  (x * 2).backward();
  CHECK(calls == 2);
  CHECK(value(x.grad()) == 12);
}

TEST_CASE("eager.A11: with recording off the hook may change leaf and gradient in place") {
  auto x = leaf(2);
  x.register_post_accumulate_grad_hook([](const Tensor& l) {
    l.mul_(3);
    l.grad().mul_(5);
  });
  (x * 1).backward();
  CHECK(value(x) == 6);
  CHECK(value(x.grad()) == 5);
}

TEST_CASE("eager.A12: the optimiser may step and free the gradient inside backward") {
  auto p = leaf(1);
  HookHandle h = p.register_post_accumulate_grad_hook([](const Tensor& l) {
    l.sub_(l.grad() * 0.1);
    l.reset_grad();
  });
  (p * 3).backward();
  CHECK(value(p) == doctest::Approx(0.7));
  CHECK_FALSE(p.grad().defined());
  (p * 3).backward();
  CHECK(value(p) == doctest::Approx(0.4));
  h.remove();
  (p * 3).backward();
  CHECK(value(p) == doctest::Approx(0.4));
  CHECK(value(p.grad()) == 3);
}

TEST_CASE("eager.A13: under create_graph changing the leaf is refused by the leaf rule") {
  auto p = leaf(1);
  HookHandle h = p.register_post_accumulate_grad_hook([](const Tensor& l) { l.mul_(2); });
  CHECK_ERROR((p * p).backward({}, {}, true),
              "a leaf that requires grad cannot be changed in place");
  h.remove();
  p.reset_grad();
  p.register_post_accumulate_grad_hook([](const Tensor& l) {
    NoGradGuard off;
    l.mul_(2);
  });
  (p * 3).backward({}, {}, true);
  CHECK(value(p) == 2);
  p.reset_grad();
}

TEST_CASE("eager.A14: changing the leaf spoils a retained graph, and the version check says so") {
  auto p = leaf(2), x = leaf(5);
  auto y = p * x;
  p.register_post_accumulate_grad_hook([](const Tensor& l) { l.sub_(l.grad() * 0.1); });
  y.backward({}, true);
  CHECK_ERROR(y.backward(), "was changed by an in-place operation");
}

TEST_CASE("eager.A15: a fresh gradient that nobody else owns is adopted without a copy") {
  auto x = leaf({1, 2});
  const void* seen = nullptr;
  grad_accumulator(x)->register_prehook([&](const variable_list& g) { seen = g[0].data_ptr(); });
  (x * constant({3, 4})).backward(ones({2}, kFloat64));
  CHECK(x.grad().data_ptr() == seen);
}

TEST_CASE("eager.A16: an existing gradient is added to in place and keeps its identity") {
  auto x = leaf(1);
  Tensor preset = constant(5.0);
  x.set_grad(preset);
  (x * 2).backward();
  CHECK(x.grad().is_same(preset));
  CHECK(value(preset) == 7);
}

TEST_CASE("eager.A17: a seed the caller holds is neither adopted nor changed") {
  auto x = leaf({1, 2});
  Tensor seed = ones({2}, kFloat64);
  x.backward(seed);
  x.backward(seed);
  CHECK(values(seed) == Values{1, 1});
  CHECK(values(x.grad()) == Values{2, 2});
  CHECK_FALSE(x.grad().is_alias_of(seed));
  auto y = leaf({1, 2}), z = leaf({1, 2});
  (y + z).backward(seed);
  y.grad().mul_(10);
  CHECK(values(seed) == Values{1, 1});
  CHECK(values(z.grad()) == Values{1, 1});
  CHECK_FALSE(z.grad().is_alias_of(seed));
}

TEST_CASE(
    "eager.A18: a post-hook sees grad()'s own buffer by rule, not by accident of reference "
    "counts") {
  auto x = leaf({1, 2});
  Tensor stash;
  bool aliases = false;
  x.register_hook([&](const Tensor& g) { stash = g; });
  grad_accumulator(x)->register_hook([&](const variable_list&, const variable_list& out) {
    aliases = out[0].is_alias_of(x.grad());
  });
  (x * 2).sum().backward();
  CHECK(aliases);
  CHECK_FALSE(stash.is_alias_of(x.grad()));
  x.reset_grad();
  Tensor seed = ones({2}, kFloat64);
  x.backward(seed);
  CHECK_FALSE(aliases);
}

TEST_CASE("eager.V1: edits of leaf and gradient inside the hook, with a seed the caller holds") {
  auto x = leaf({.5, .5, .5});
  Tensor b = constant({2, 2, 2});
  x.register_post_accumulate_grad_hook([](const Tensor& l) {
    l.mul_(l.grad());
    l.grad().mul_(5);
  });
  x.backward(b);
  CHECK(values(x) == Values{1, 1, 1});
  CHECK(values(x.grad()) == Values{10, 10, 10});
  CHECK(values(b) == Values{2, 2, 2});
}

TEST_CASE("eager.V2: every kind of hook on one leaf") {
  auto t = leaf(0);
  t.register_hook(plus(-2));
  grad_accumulator(t)->register_prehook(
      [](const variable_list& g) { return variable_list{g[0] / 5}; });
  t.register_post_accumulate_grad_hook([](const Tensor& l) { l.mutable_grad() += 0.5; });
  grad_accumulator(t)->register_hook(
      [&](const variable_list&, const variable_list& out) { t.set_grad(out[0] * 10); });
  t.sum().backward();
  CHECK(value(t.grad()) == doctest::Approx(3));
}

TEST_CASE("eager.V3: clearing the gradient between passes") {
  auto x = ones({10}, dtype(kFloat64).requires_grad(true));
  x.register_post_accumulate_grad_hook([](const Tensor& l) { l.grad().mul_(2); });
  for (int i = 0; i < 5; ++i) {
    x.reset_grad();
    (x * i).sum().backward();
    CHECK(values(x.grad()) == Values(10, 2.0 * i));
  }
}

TEST_CASE("two leaves of one sum never share a gradient buffer") {
  auto x = leaf({1, 2}), y = leaf({3, 4});
  (x + y).sum().backward();
  x.grad().mul_(100);
  CHECK(values(y.grad()) == Values{1, 1});
}
