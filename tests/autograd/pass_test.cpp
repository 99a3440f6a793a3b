/// Undefined gradients, throwing hooks, grad mode, explicit inputs.
#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE("eager.U1: hooks of slots that were not reached fire with an undefined gradient") {
  auto x = leaf({1, 2, 3, 4, 5});
  auto parts = x.unbind();
  Recorder rec;
  parts[0].register_hook(rec);
  parts[0].backward({}, true);
  CHECK(*rec.seen == Values{1});
  CHECK(values(x.grad()) == Values{1, 0, 0, 0, 0});
  parts[1].backward();
  REQUIRE(rec.seen->size() == 2);
  CHECK(std::isnan(rec.seen->back()));
  CHECK(values(x.grad()) == Values{1, 1, 0, 0, 0});
}

TEST_CASE("eager.U2: a hook may not turn an undefined gradient into a defined one") {
  auto x = leaf({1, 2});
  auto parts = x.unbind();
  HookHandle h =
      parts[0].register_hook([](const Tensor& g) { return g.defined() ? g : ones({}, kFloat64); });
  CHECK_ERROR(parts[1].backward({}, true), "returned a gradient where there was none");
  h.remove();
  parts[0].register_hook([](const Tensor&) { return Tensor(); });
  parts[0].register_hook([](const Tensor& g) { return g; });
  parts[1].backward();
  CHECK(values(x.grad()) == Values{0, 1});
}

namespace {
struct GivesNothing : autograd::Function<GivesNothing> {
  static Tensor forward(autograd::AutogradContext*, Tensor x) { return x * 2; }
  static variable_list backward(autograd::AutogradContext*, variable_list) { return {Tensor()}; }
};
}  // namespace

TEST_CASE(
    "eager.U3: undefined gradients pass through nodes and hooks, and nothing is accumulated") {
  auto x = leaf(1);
  auto mid = x * 1;
  Recorder on_leaf, on_mid;
  int accumulated = 0, pre = 0, post = 0;
  x.register_hook(on_leaf);
  mid.register_hook(on_mid);
  x.register_post_accumulate_grad_hook([&](const Tensor&) { ++accumulated; });
  mid.grad_fn()->register_prehook([&](const variable_list& g) {
    ++pre;
    CHECK_FALSE(g[0].defined());
  });
  mid.grad_fn()->register_hook([&](const variable_list&, const variable_list&) { ++post; });
  GivesNothing::apply(mid).backward();
  CHECK(on_leaf.seen->size() == 1);
  CHECK(std::isnan(on_leaf.seen->at(0)));
  CHECK(std::isnan(on_mid.seen->at(0)));
  CHECK(pre == 1);
  CHECK(post == 1);
  CHECK(accumulated == 0);
  CHECK_FALSE(x.grad().defined());
}

namespace {
struct Boom : std::exception {
  const char* what() const noexcept override { return "boom"; }
};
}  // namespace

TEST_CASE(
    "eager.E1: the first exception ends the pass and reaches the caller with its own type and "
    "message") {
  auto x = leaf(1);
  auto y = x * 2;
  y.register_hook([](const Tensor&) { throw Boom(); });
  CHECK_THROWS_AS(y.backward(), Boom);
  auto z = leaf(1) * 2;
  z.register_hook([](const Tensor&) { fail("my words"); });
  CHECK(base::without_places(error_of([&] { z.backward(); })) == "my words");
  auto w = leaf(1) * 2;
  w.register_hook([](const Tensor&) { throw 42; });
  CHECK_THROWS_AS(w.backward(), int);
}

TEST_CASE("eager.E2: leaves already accumulated keep their gradient when a later hook throws") {
  auto a = leaf(1), b = leaf(1);
  auto t = b * 2;
  auto out = a + t;
  t.register_hook([](const Tensor&) { throw Boom(); });
  CHECK_THROWS_AS(out.backward(), Boom);
  CHECK(value(a.grad()) == 1);
  CHECK_FALSE(b.grad().defined());

  auto x = leaf(2);
  auto y = x * x;
  auto z = y * y;
  HookHandle h = y.register_hook([](const Tensor&) { throw Boom(); });
  CHECK_THROWS_AS(z.backward(), Boom);
  h.remove();
  CHECK_ERROR(z.backward(), "already been freed");
}

TEST_CASE(
    "eager.E3: after a throw the rest of the list, queued nodes and callbacks are dropped, "
    "registrations stay") {
  auto x = leaf(1);
  auto y = x * 2;
  int later = 0, callbacks = 0;
  bool armed = true;
  y.register_hook([&](const Tensor&) {
    autograd::queue_callback([&] { ++callbacks; });
    if (std::exchange(armed, false)) throw Boom();
  });
  y.register_hook([&](const Tensor&) { ++later; });
  CHECK_THROWS_AS(y.backward({}, true), Boom);
  CHECK(later == 0);
  CHECK(callbacks == 0);
  y.backward();
  CHECK(later == 1);
  CHECK(callbacks == 1);
}

TEST_CASE("eager.E4: what a throw leaves behind depends on where it happened") {
  auto b = leaf(3);
  auto t = b * b;
  bool armed = true;
  t.grad_fn()->register_hook([&](const variable_list&, const variable_list&) {
    if (std::exchange(armed, false)) throw Boom();
  });
  CHECK_THROWS_AS(t.backward(), Boom);
  CHECK_FALSE(b.grad().defined());
  t.backward();
  CHECK(value(b.grad()) == 6);

  auto p = leaf(3);
  p.register_post_accumulate_grad_hook([](const Tensor&) { throw Boom(); });
  CHECK_THROWS_AS((p * 2).backward(), Boom);
  CHECK(value(p.grad()) == 2);

  auto q = leaf(3);
  auto u = q * q;
  HookHandle h = u.grad_fn()->register_prehook([](const variable_list&) { throw Boom(); });
  CHECK_THROWS_AS(u.backward(), Boom);
  h.remove();
  u.backward();
  CHECK(value(q.grad()) == 6);
}

TEST_CASE(
    "eager.E5: under anomaly mode the forward place of the node is reported when a hook throws") {
  std::string warning;
  set_warning_handler([&](const std::string& m) { warning = m; });
  {
    DetectAnomalyGuard anomaly;
    auto y = leaf(1) * 2;
    y.register_hook([](const Tensor&) { throw Boom(); });
    CHECK_THROWS_AS(y.backward(), Boom);
  }
  set_warning_handler({});
  CHECK(contains(warning, "mul was called at"));
  CHECK(contains(warning, "pass_test.cpp:"));
}

TEST_CASE("eager.E6: under StrongBackward a failing pass leaves every grad() as it was") {
  auto a = leaf(1), b = leaf(1), c = leaf(1);
  a.set_grad(constant(5.0));
  Tensor before = a.grad();
  auto t = b * 2;
  auto out = a + c + t;
  HookHandle h = t.register_hook([](const Tensor&) { throw Boom(); });
  {
    autograd::StrongBackward strong;
    CHECK_THROWS_AS(out.backward({}, true), Boom);
  }
  CHECK(a.grad().is_same(before));
  CHECK(value(a.grad()) == 5);
  CHECK_FALSE(c.grad().defined());
  h.remove();
  autograd::StrongBackward strong;
  out.backward();
  CHECK(value(a.grad()) == 6);
  CHECK(value(c.grad()) == 1);
}

TEST_CASE("eager.M1: hooks run with recording off, or on when the pass builds a graph") {
  for (bool create : {false, true}) {
    auto x = leaf(1);
    auto y = x * x;
    int seen = 0;
    auto look = [&] {
      CHECK(GradMode::is_enabled() == create);
      ++seen;
    };
    y.register_hook([&](const Tensor&) { look(); });
    y.grad_fn()->register_prehook([&](const variable_list&) { look(); });
    y.grad_fn()->register_hook([&](const variable_list&, const variable_list&) { look(); });
    x.register_post_accumulate_grad_hook([&](const Tensor&) { look(); });
    y.backward({}, {}, create);
    CHECK(seen == 4);
    CHECK(GradMode::is_enabled());
    x.reset_grad();
  }
}

TEST_CASE("eager.M2: with create_graph the operations of a hook are differentiated") {
  auto x = leaf(3);
  auto y = x * x;
  auto out = y * 2;
  y.register_hook([&](const Tensor& g) { return g * x; });
  Tensor first = autograd::grad({out}, {x}, {}, {}, true)[0];
  CHECK(value(first) == 36);
  Tensor second = autograd::grad({first}, {x})[0];
  CHECK(value(second) == 24);
}

TEST_CASE(
    "eager.M3: with create_graph an existing gradient is replaced, without it added to in place") {
  auto x = leaf(2);
  (x * x).backward();
  Tensor first = x.grad();
  (x * x).backward();
  CHECK(x.grad().is_same(first));
  CHECK(value(first) == 8);
  (x * x).backward({}, {}, true);
  CHECK_FALSE(x.grad().is_same(first));
  CHECK(value(x.grad()) == 12);
  CHECK(value(first) == 8);
  CHECK(x.grad().requires_grad());
  x.reset_grad();
}

namespace {
struct Explicit {
  Tensor a = leaf(1), b = a * 2, c = b * 2;
  int tensor_hooks = 0, pre = 0, post = 0;
  Explicit() {
    b.register_hook([this](const Tensor& g) {
      ++tensor_hooks;
      return g * 10;
    });
    a.register_hook([this](const Tensor& g) {
      ++tensor_hooks;
      return g;
    });
    for (const NodePtr& node : {b.grad_fn(), NodePtr(grad_accumulator(a))}) {
      node->register_prehook([this](const variable_list&) { ++pre; });
      node->register_hook([this](const variable_list&, const variable_list&) { ++post; });
    }
  }
  void expect(int t, int p, int q) const {
    CHECK(tensor_hooks == t);
    CHECK(pre == p);
    CHECK(post == q);
  }
};
}  // namespace

TEST_CASE("eager.X1: backward without inputs runs everything") {
  Explicit e;
  e.c.backward();
  CHECK(value(e.a.grad()) == 40);
  e.expect(2, 2, 2);
}
TEST_CASE("eager.X2: backward with leaf and non-leaf inputs") {
  Explicit e;
  e.c.backward({}, {}, false, variable_list{e.a, e.b});
  CHECK(value(e.a.grad()) == 40);
  CHECK(value(e.b.grad()) == 20);
  e.expect(2, 2, 2);
}
TEST_CASE("eager.X3: backward to a non-leaf runs its node and leaves what lies beyond alone") {
  Explicit e;
  e.c.backward({}, {}, false, variable_list{e.b});
  CHECK(value(e.b.grad()) == 20);
  CHECK_FALSE(e.a.grad().defined());
  e.expect(1, 1, 1);
}
TEST_CASE("eager.X4: grad of a non-leaf only passes by its node") {
  Explicit e;
  CHECK(value(autograd::grad({e.c}, {e.b})[0]) == 20);
  e.expect(1, 0, 0);
}
TEST_CASE("eager.X5: grad of a leaf") {
  Explicit e;
  CHECK(value(autograd::grad({e.c}, {e.a})[0]) == 40);
  e.expect(2, 1, 1);
}
TEST_CASE("eager.X6: grad of both gives the hooked value for each") {
  Explicit e;
  auto g = autograd::grad({e.c}, {e.a, e.b});
  CHECK(value(g[0]) == 40);
  CHECK(value(g[1]) == 20);
  e.expect(2, 1, 1);
}
TEST_CASE("eager.X7: tensor hooks fire on traversal, node hooks on execution") {
  Explicit e;
  autograd::grad({e.c}, {e.b}, {}, true);
  e.expect(1, 0, 0);
  autograd::grad({e.c}, {e.a}, {}, true);
  e.expect(3, 1, 1);
}
TEST_CASE("eager.X8: grad never runs the accumulate node") {
  auto x = leaf(1);
  int calls = 0;
  x.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  grad_accumulator(x)->register_prehook([&](const variable_list&) { ++calls; });
  x.register_hook(times(3));
  CHECK(value(autograd::grad({x * 2}, {x})[0]) == 6);
  CHECK(calls == 0);
  CHECK_FALSE(x.grad().defined());
}
TEST_CASE("eager.X9: what grad captures does not depend on which other inputs were asked for") {
  Explicit e;
  const double alone = value(autograd::grad({e.c}, {e.b}, {}, true)[0]);
  const double together = value(autograd::grad({e.c}, {e.a, e.b}, {}, true)[1]);
  CHECK(alone == together);
}
TEST_CASE("eager.X10: backward with a non-leaf input does not leave retain-grad on") {
  auto a = leaf(1);
  auto b = a * 2;
  auto c = b * 2;
  c.backward({}, true, false, variable_list{b});
  CHECK(value(b.grad()) == 2);
  CHECK_FALSE(b.retains_grad());
  c.backward();
  CHECK(value(b.grad()) == 2);
}
TEST_CASE("eager.X11: empty and unreachable inputs") {
  auto a = leaf(1), other = leaf(1);
  auto c = a * 2;
  CHECK_ERROR(c.backward({}, true, false, variable_list{}), "the list of inputs is empty");
  CHECK_ERROR(autograd::grad({c}, {}, {}, true), "the list of inputs is empty");
  CHECK_ERROR(autograd::grad({c}, {other}, {}, true), "was not used to compute the outputs");
  CHECK_FALSE(autograd::grad({c}, {other}, {}, true, false, true)[0].defined());
  c.backward({}, true, false, variable_list{other});
  CHECK_FALSE(other.grad().defined());
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("eager.C1: a hook that adds, on a leaf") {
  auto x = leaf(1);
  x.register_hook(plus(3));
  ((x * 2) * 3).backward();
  CHECK(value(x.grad()) == 9);
}
TEST_CASE("eager.C2: register, remove, register another") {
  auto v = leaf({0, 0, 0});
  HookHandle h = v.register_hook(times(2));
  h.remove();
  v.register_hook(times(3));
  v.backward(constant({1, 2, 3}));
  CHECK(values(v.grad()) == Values{3, 6, 9});
}
TEST_CASE("eager.C3: a hook reads a captured object each time") {
  double c = 88;
  for (double want : {88.360039, 99.360039}) {
    auto x = leaf(1);
    x.register_hook([&](const Tensor& g) { return g + c; });
    sin(sin(x)).backward();
    CHECK(value(x.grad()) == doctest::Approx(want).epsilon(1e-7));
    c = 99;
  }
}
TEST_CASE("eager.C4: the same on an intermediate") {
  double c = 88;
  for (double want : {47.906642, 53.849968}) {
    auto x = leaf(1);
    auto y = sin(x);
    y.register_hook([&](const Tensor& g) { return g + c; });
    sin(y).backward();
    CHECK(value(x.grad()) == doctest::Approx(want).epsilon(1e-7));
    c = 99;
  }
}
TEST_CASE("eager.C5: a factor bound to the hook may be bound anew") {
  for (double k : {1.0, 2.0}) {
    auto x = leaf(1);
    auto y = x * 2;
    y.register_hook(times(k));
    (y * 3).backward();
    CHECK(value(x.grad()) == 6 * k * 1);
  }
}
TEST_CASE("eager.C6: the callable behind a hook may be replaced between passes") {
  auto x = leaf(1);
  std::function<Tensor(const Tensor&)> h = identity;
  auto run = [&] {
    auto y = x * 2;
    y.register_hook([&](const Tensor& g) { return h(g); });
    y.register_hook([&](const Tensor& g) { return h(g); });
    (y * 3).backward();
  };
  run();
  CHECK(value(x.grad()) == 6);
  h = times(2);
  run();
  CHECK(value(x.grad()) == 30);
}
TEST_CASE("eager.C7: a handle returned twice or stored outside is the same handle") {
  auto x = leaf(1);
  auto f = [&] {
    HookHandle h = x.register_hook(times(5));
    return std::pair(h, h);
  };
  auto [a, b] = f();
  CHECK(a == b);
  b.remove();
  CHECK_FALSE(a.active());
  (x * 1).backward();
  CHECK(value(x.grad()) == 1);
}
