#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE("eager.T1: a tensor hook sees the gradient once, after all paths are summed") {
  auto x = leaf(1);
  auto y = x * 2;
  auto z = y * 3 + y * 4;
  Recorder rec;
  y.register_hook(rec);
  z.backward();
  CHECK(*rec.seen == Values{7});
  CHECK(value(x.grad()) == 14);
}

TEST_CASE(
    "eager.T2: on a leaf the hook acts before the gradient is added, and earlier content does not "
    "pass through it") {
  auto v = leaf({0, 0, 0});
  v.register_hook(times(2));
  v.backward(constant({1, 2, 3}));
  CHECK(values(v.grad()) == Values{2, 4, 6});
  v.backward(constant({1, 2, 3}));
  CHECK(values(v.grad()) == Values{4, 8, 12});
}

TEST_CASE("eager.T3: a hook registered after the tensor was consumed still fires") {
  auto x = leaf(1);
  auto y = x * 2;
  auto z = y * 3;
  y.register_hook(times(10));
  z.backward();
  CHECK(value(x.grad()) == 60);
}

TEST_CASE(
    "eager.T4: hooks of one tensor run in order of registration, each seeing the previous result") {
  auto v = leaf({0, 0, 0});
  v.register_hook(times(4));
  v.register_hook([](const Tensor& g) { return g / 2; });
  v.register_hook(times(3));
  v.backward(constant({1, 2, 3}));
  CHECK(values(v.grad()) == Values{6, 12, 18});

  auto x = leaf(1);
  auto y = x * 2;
  y.register_hook(plus(3));
  y.register_hook(plus(4));
  (y * 3).backward();
  CHECK(value(x.grad()) == 20);

  auto a = leaf(0), b = leaf(0);
  a.register_hook(plus(1)), a.register_hook(times(2));
  b.register_hook(times(2)), b.register_hook(plus(1));
  a.backward(constant(3.0));
  b.backward(constant(3.0));
  CHECK(value(a.grad()) == 8);
  CHECK(value(b.grad()) == 7);
}

TEST_CASE("eager.T5: one callable registered twice runs twice, with two independent handles") {
  auto x = leaf(0);
  auto f = times(2);
  HookHandle first = x.register_hook(f);
  x.register_hook(f);
  x.backward();
  CHECK(value(x.grad()) == 4);
  first.remove();
  x.reset_grad();
  x.backward();
  CHECK(value(x.grad()) == 2);
}

TEST_CASE("eager.T6: a hook's state is observed call by call") {
  auto x = leaf(1);
  auto y = x * 2;
  int calls = 0;
  std::vector<double> seen;
  auto hook = [&](const Tensor& g) {
    seen.push_back(value(g));
    return calls++ % 2 == 0 ? g * g : g + g;
  };
  y.register_hook(hook);
  y.register_hook(hook);
  (y * 3).backward();
  CHECK(seen == Values{3, 9});
  CHECK(value(x.grad()) == 36);
  CHECK(calls == 2);
}

TEST_CASE("eager.T7: a hook on the root receives the seed") {
  auto x = leaf({1, 1});
  auto y = x * 2;
  Recorder rec;
  y.register_hook(rec);
  y.backward(constant({5, 6}));
  CHECK(*rec.seen == Values{5});
  CHECK(values(x.grad()) == Values{10, 12});
}

TEST_CASE("eager.T8: a tensor that is not traversed does not fire its hooks") {
  auto a = leaf(1), b = leaf(1);
  auto out = a + b + a.clone();
  a.register_hook([](const Tensor&) { throw std::runtime_error("must not run"); });
  grad_accumulator(a)->register_prehook(
      [](const variable_list&) { throw std::runtime_error("must not run"); });
  out.backward({}, {}, false, variable_list{b});
  CHECK(value(b.grad()) == 1);
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("eager.T9: a hook needs a tensor that requires grad") {
  auto c = constant(1.0);
  CHECK_ERROR(c.register_hook(identity), "does not require grad");
}

TEST_CASE("eager.T10: slots are served in the order in which each got its first hook") {
  auto x = leaf({1, 2});
  auto parts = x.unbind();
  std::string log;
  parts[1].register_hook([&](const Tensor&) { log += "1"; });
  parts[0].register_hook([&](const Tensor&) { log += "0"; });
  parts[1].register_hook([&](const Tensor&) { log += "b"; });
  (parts[0] + parts[1]).backward();
  CHECK(log == "1b0");
}

TEST_CASE(
    "eager.T11: a leaf that stopped requiring grad still fires its hooks but accumulates nothing") {
  auto x = leaf(1);
  auto y = x * 2;
  Recorder rec;
  int written = 0;
  x.register_hook(rec);
  x.register_post_accumulate_grad_hook([&](const Tensor&) { ++written; });
  x.set_requires_grad(false);
  y.backward();
  CHECK(*rec.seen == Values{2});
  CHECK_FALSE(x.grad().defined());
  CHECK(written == 0);
}

TEST_CASE(
    "eager.T12: a hook registered inside a pass takes effect if its tensor was not traversed yet") {
  auto x = leaf(1);
  auto y = x * 2;
  auto z = y * 3;
  z.register_hook([&](const Tensor&) { y.register_hook(times(10)); });
  z.backward();
  CHECK(value(x.grad()) == 60);
}

TEST_CASE("eager.R1: returning nothing leaves the gradient unchanged") {
  auto x = leaf(1);
  x.register_hook([](const Tensor&) {});
  x.register_hook([](const Tensor&) { return Tensor(); });
  x.register_hook([](const Tensor&) { return std::optional<Tensor>(); });
  (x * 3).backward();
  CHECK(value(x.grad()) == 3);
}

TEST_CASE("eager.R2: returning the argument itself counts as unchanged") {
  auto x = leaf(1);
  x.register_hook([](const Tensor& g) { return g; });
  (x * 3).backward();
  CHECK(value(x.grad()) == 3);
}

TEST_CASE("eager.R3: a replacement must keep type and size, and the error names the hook") {
  auto x = tensor({1.0, 2.0, 3.0}, requires_grad());
  auto seed = ones({3});
  auto bad_size = x.register_hook([](const Tensor&) { return ones({1}); }, "shrink");
  CHECK_ERROR(x.backward(seed), "changed the size of the gradient from [3] to [1]");
  CHECK_ERROR(x.backward(seed), "'shrink' registered at");
  bad_size.remove();
  auto bad_type = x.register_hook([](const Tensor& g) { return g.to(kFloat64); });
  CHECK_ERROR(x.backward(seed), "changed the type of the gradient from f32 to f64");
  bad_type.remove();
  x.backward(seed);
  CHECK(values(x.grad()) == Values{1, 1, 1});
}

TEST_CASE("eager.R3: a hook that returns something other than a tensor does not compile") {
  auto returns_number = [](const Tensor&) { return 1.0; };
  static_assert(!std::is_convertible_v<decltype(returns_number(Tensor())), std::optional<Tensor>>);
}

TEST_CASE("eager.R4: strides and the requires-grad flag of a replacement are free") {
  auto x = leaf({1, 2, 3});
  x.register_hook(
      [](const Tensor& g) { return g.sum().expand({3}).detach().set_requires_grad(true); });
  (x * 2).sum().backward();
  CHECK(values(x.grad()) == Values{6, 6, 6});
}

TEST_CASE("eager.R5: changing the argument in place is detected") {
  auto x = leaf(1), y = leaf(1);
  auto z = x + y;
  x.register_hook([](const Tensor& g) { g.mul_(10); }, "spoil");
  CHECK_ERROR(z.backward(), "changed its argument in place");

  // Also among several hooks, and before a node.
  auto a = leaf(1);
  a.register_hook([](const Tensor&) {});
  a.register_hook([](const Tensor& g) { g.mul_(10); }, "spoil");
  CHECK_ERROR((a * 2).backward(), "changed its argument in place");
  auto b = leaf(1), c = b * 2;
  c.grad_fn()->register_prehook([](const variable_list& g) { g[0].mul_(10); }, "spoil");
  CHECK_ERROR(c.backward(), "changed its argument in place");
}

TEST_CASE("eager.R6: a stashed argument keeps its value because the leaf copies") {
  auto x = leaf(1);
  Tensor kept;
  x.register_hook([&](const Tensor& g) { kept = g; });
  (x * 3).backward();
  x.grad().mul_(100);
  CHECK(value(kept) == 3);
  CHECK_FALSE(kept.is_alias_of(x.grad()));
}

TEST_CASE("a hook may ask for its context: name, slot, pass and depth") {
  auto x = leaf(1);
  x.set_name("weight");
  std::vector<uint64_t> passes;
  x.register_hook(
      [&](const Tensor&, const HookContext& c) {
        CHECK(c.hook_name() == "watch");
        CHECK(c.tensor_name() == "weight");
        CHECK(c.slot == 0);
        CHECK(c.final());
        CHECK_FALSE(c.creates_graph);
        passes.push_back(c.pass);
      },
      "watch");
  (x * 3).backward();
  (x * 3).backward();
  REQUIRE(passes.size() == 2);
  CHECK(passes[0] != passes[1]);
}

namespace {
struct Counter {
  int calls = 0;
  Tensor on_grad(const Tensor& g) {
    ++calls;
    return g * 2;
  }
};
Tensor doubled(const Tensor& g) { return g * 2; }
}  // namespace

TEST_CASE(
    "lambdas, functors, free functions, std::function, bound members and move-only callables are "
    "all hooks") {
  auto x = leaf(1);
  Counter counter;
  x.register_hook(doubled);
  x.register_hook(std::function<Tensor(const Tensor&)>(doubled));
  x.register_hook([&counter](const Tensor& g) { return counter.on_grad(g); });
  x.register_hook([owned = std::make_unique<double>(2.0)](const Tensor& g) { return g * *owned; });
  x.register_hook([](auto g) { return g * 2; });
  x.register_hook([](Tensor g) { return std::optional<Tensor>(g * 2); });
  (x * 1).backward();
  CHECK(value(x.grad()) == 64);
  CHECK(counter.calls == 1);
}
