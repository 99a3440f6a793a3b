#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE("eager.P1: a hook is bound to the version of the tensor at registration") {
  auto a = leaf(1);
  auto b = a.clone();
  std::vector<double> h1, h2;
  b.register_hook([&](const Tensor& g) {
    h1.push_back(value(g));
    return g * 2;
  });
  b.mul_(2);
  b.register_hook([&](const Tensor& g) {
    h2.push_back(value(g));
    return g * 2;
  });
  b.backward();
  CHECK(h2 == Values{1});
  CHECK(h1 == Values{4});
  CHECK(value(a.grad()) == 8);
}

TEST_CASE("eager.P2: any number of in-place changes leave the hook on the old version") {
  auto a = leaf(1);
  auto b = a.clone();
  std::vector<double> seen;
  b.register_hook([&](const Tensor& g) {
    seen.push_back(value(g));
    return g * 2;
  });
  b.mul_(2);
  b.mul_(2);
  b.backward();
  CHECK(seen == Values{4});
  CHECK(value(a.grad()) == 8);
}

TEST_CASE("eager.P3: untracked in-place changes do not move hooks") {
  auto a = leaf(1);
  auto b = a.clone();
  auto view = b.view({-1});
  Recorder on_b, on_view;
  b.register_hook(on_b);
  view.register_hook(on_view);
  {
    NoGradGuard no_grad;
    b.mul_(2);
  }
  (b + view).backward();
  CHECK(*on_b.seen == Values{2});
  CHECK(*on_view.seen == Values{1});
}

namespace {
struct TwoOutputs : autograd::Function<TwoOutputs> {
  static variable_list forward(autograd::AutogradContext*, Tensor x) { return {x * 2, x * 3}; }
  static variable_list backward(autograd::AutogradContext*, variable_list g) {
    return {g[0] * 2 + g[1] * 3};
  }
};
}  // namespace

TEST_CASE("eager.P4: on a node of several outputs only the changed output moves on") {
  auto x = leaf(1);
  auto o = TwoOutputs::apply(x);
  Tensor o1 = o[0], o2 = o[1];
  Recorder r0, r1, r2;
  o1.register_hook(r0);
  o2.register_hook(r1);
  o1.mul_(2);
  o1.register_hook(r2);
  (o1 + o2 * 3).backward();
  CHECK(*r2.seen == Values{1});
  CHECK(*r0.seen == Values{2});
  CHECK(*r1.seen == Values{3});
  CHECK(value(x.grad()) == 13);
}

TEST_CASE("eager.P5: after a change through a view, hooks of the base stay on its old node") {
  auto a = leaf(1);
  auto b = a.clone();
  Recorder rec;
  b.register_hook(rec);
  auto v = b.slice();
  v.mul_(2);
  b.backward();
  CHECK(*rec.seen == Values{2});
  CHECK(value(a.grad()) == 2);
}

TEST_CASE("eager.P6: an in-place change that would cut off hooks on a view is refused") {
  auto b = leaf(1).clone();
  auto v1 = b.slice(), v2 = b.slice();
  int calls = 0;
  HookHandle f0 = v1.register_hook([&](const Tensor&) { ++calls; });
  HookHandle f1 = v2.register_hook([&](const Tensor&) { ++calls; });
  CHECK_ERROR(v1.mul_(2), "hooks would never fire again");
  CHECK_ERROR(b.mul_(2), "hooks would never fire again");
  CHECK(value(b) == 1);
  f0.remove();
  f1.remove();
  v1.mul_(2);
  Recorder f2;
  v2.register_hook(f2);
  (v1 + v2).backward();
  CHECK(*f2.seen == Values{1});
  CHECK(calls == 0);
}

TEST_CASE("eager.P7: registering on a view whose base was changed uses its fresh node") {
  auto a = leaf({1, 1});
  auto x = a.clone();
  auto v = x.view({2});
  v.slice().add_(1);
  v.register_hook(identity);
  v.sum().backward();
  CHECK(values(a.grad()) == Values{1, 1});
}

TEST_CASE(
    "eager.G1: retain-grad does nothing on leaves, once is enough, and it needs a gradient to "
    "retain") {
  auto x = leaf(1);
  x.retain_grad();
  CHECK_FALSE(x.retains_grad());
  auto y = x * 2;
  y.retain_grad();
  y.retain_grad();
  (y * 3).backward();
  CHECK(value(y.grad()) == 3);
  CHECK_ERROR(constant(1.0).retain_grad(), "does not require grad");
}

TEST_CASE("eager.G2: retain-grad runs after all tensor hooks, whatever the order of registration") {
  auto b = leaf(1).clone();
  b.register_hook(times(2));
  b.retain_grad();
  b.register_hook(times(2));
  b.backward();
  CHECK(value(b.grad()) == 4);
  auto c = leaf(1).clone();
  c.retain_grad();
  c.register_hook(times(2));
  c.backward();
  CHECK(value(c.grad()) == 2);
}

TEST_CASE("eager.G3: retain-grad runs before node pre-hooks") {
  auto b = leaf(1).clone();
  std::string log;
  b.register_hook([&](const Tensor& g) {
    log += "t";
    return g * 3;
  });
  for (int i = 0; i < 2; ++i)
    b.grad_fn()->register_prehook([&](const variable_list& g) {
      log += "p";
      return variable_list{g[0] * 2};
    });
  b.clone().backward({}, {}, false, variable_list{b});
  CHECK(value(b.grad()) == 3);
  CHECK(log == "tpp");
}

TEST_CASE("eager.G4: later passes add out of place to a retained gradient") {
  auto i = leaf(2);
  auto h = i * 3;
  auto out = h * h;
  h.retain_grad();
  out.backward({}, true);
  Tensor first = h.grad();
  CHECK(value(first) == 12);
  CHECK(first.is_contiguous());
  out.backward();
  CHECK(value(h.grad()) == 24);
  CHECK(value(first) == 12);
  CHECK_FALSE(h.grad().is_same(first));
}

TEST_CASE("eager.G5: retain-grad follows the tensor through in-place changes") {
  auto a = leaf(1).clone();
  a.retain_grad();
  a.mul_(2);
  a.mul_(2);
  a.backward();
  CHECK(value(a.grad()) == 1);
}

TEST_CASE("eager.G6: retain-grad follows views and bases changed through views") {
  auto b = leaf(1).clone();
  auto v1 = b.slice(), v2 = b.slice();
  v1.retain_grad();
  v2.retain_grad();
  v1.mul_(2);
  (v1 + v2).backward();
  CHECK(value(v1.grad()) == 1);
  CHECK(value(v2.grad()) == 1);

  auto c = leaf(1).clone();
  auto w = c.slice();
  c.retain_grad();
  w.mul_(3);
  (c * 5).backward();
  CHECK(value(c.grad()) == 5);
}

TEST_CASE("eager.G7: an undefined gradient writes nothing, and a dead tensor is skipped") {
  auto x = leaf({1, 2});
  auto parts = x.unbind();
  parts[0].retain_grad();
  parts[1].retain_grad();
  parts[1].backward();
  CHECK_FALSE(parts[0].grad().defined());
  CHECK(value(parts[1].grad()) == 1);

  Tensor z;
  {
    auto y = leaf(1) * 2;
    y.retain_grad();
    z = y * 3;
  }
  z.backward();
}

TEST_CASE("eager.G8: retain-grad also fires when grad() only passes by") {
  auto a = leaf(1);
  auto b = a * 2;
  auto c = b * 2;
  b.retain_grad();
  CHECK(value(autograd::grad({c}, {b})[0]) == 2);
  CHECK(value(b.grad()) == 2);
}

TEST_CASE("eager.G9: hooks, retain-grad and in-place changes mix") {
  for (int changes : {1, 2}) {
    auto a = leaf(1).clone();
    Recorder h1, h2, h3;
    a.register_hook(h1);
    a.retain_grad();
    a.register_hook(h2);
    for (int i = 0; i < changes; ++i) a.mul_(2);
    a.register_hook(h3);
    (a + 1).backward();
    const double old = changes == 1 ? 2 : 4;
    CHECK(*h1.seen == Values{old});
    CHECK(*h2.seen == Values{old});
    CHECK(*h3.seen == Values{1});
    CHECK(value(a.grad()) == 1);
  }
}

TEST_CASE("eager.G10: retain-grad is kept by tensor, not by slot") {
  auto x = leaf(1);
  auto o = TwoOutputs::apply(x);
  Tensor o2 = o[1];
  o2.retain_grad();
  o2.mul_(2);
  (o[0] + o2).backward();
  CHECK(value(o2.grad()) == 1);
  CHECK(value(x.grad()) == 8);
}
