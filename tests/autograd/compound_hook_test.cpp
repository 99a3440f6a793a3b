/// Hooks on several tensors, saved-tensor hooks, anomaly mode.
#include <thread>

#include "grapnel/autograd/op_node.h"
#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

namespace {
/// One entry per tensor, NaN for undefined.
Values first_values(const variable_list& grads) {
  Values out;
  for (const Tensor& g : grads) out.push_back(g.defined() ? value(g) : NAN);
  return out;
}
bool same(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return false;
  return true;
}
}  // namespace

TEST_CASE(
    "eager.K1: an all-hook is called once, when the last tensor this pass reaches has its "
    "gradient") {
  auto t1 = leaf(1), t2 = leaf(2), t3 = leaf(5), t4 = leaf(1);
  std::vector<Values> calls;
  register_multi_grad_hook({t1, t2, t3, t4},
                           [&](const variable_list& g) { calls.push_back(first_values(g)); });
  auto out = t2 * t3;
  out.backward({}, true, false, variable_list{t2, t3});
  REQUIRE(calls.size() == 1);
  CHECK(same(calls[0], {NAN, 5, 2, NAN}));
  out.backward({}, true, false, variable_list{t1, t4});
  CHECK(calls.size() == 1);
  out.backward({}, true, false, variable_list{t1, t3});
  REQUIRE(calls.size() == 2);
  CHECK(same(calls[1], {NAN, NAN, 2, NAN}));
}

TEST_CASE(
    "eager.K2: an any-hook is called once, with the first gradient, and skips tensors without "
    "grad") {
  auto z = leaf(1);
  auto a = sin(z), b = cos(z);
  std::string log;
  z.register_hook([&](const Tensor&) { log += "z"; });
  register_multi_grad_hook(
      {a, b, constant(1.0)}, [&](const Tensor&) { log += "m"; }, MultiGrad::any);
  (a + b).backward();
  CHECK(log == "mz");
  CHECK_ERROR(register_multi_grad_hook({a, constant(1.0)}, [](const variable_list&) {}),
              "does not require grad");
}

TEST_CASE(
    "eager.K3: what a multi-gradient hook returns is ignored, and unknown modes are refused") {
  auto x = leaf(1);
  register_multi_grad_hook({x}, [](const variable_list& g) { return g[0] * 100; });
  (x * 2).backward();
  CHECK(value(x.grad()) == 2);
  CHECK_ERROR(register_multi_grad_hook(
                  {x}, [](const auto&) {}, static_cast<MultiGrad>(7)),
              "unknown mode 7");
}

TEST_CASE("eager.K4: each gradient is the value at the hook's place in the tensor's list") {
  auto x = leaf(1);
  double seen = 0;
  x.register_hook(times(2));
  register_multi_grad_hook({x}, [&](const variable_list& g) {
    seen = value(g[0]);
    CHECK_FALSE(x.grad().defined());
  });
  x.register_hook(times(10));
  (x * 1).backward();
  CHECK(seen == 2);
  CHECK(value(x.grad()) == 20);
}

TEST_CASE("eager.K5: counting is per pass, also with passes on several threads") {
  auto a = leaf(1), b = leaf(2);
  std::atomic<int> calls{0};
  register_multi_grad_hook({a, b}, [&](const variable_list&) { ++calls; });
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i)
    threads.emplace_back([&, i] {
      auto y = a * 2;
      auto z = y * b;
      if (i == 3) y.register_hook([](const Tensor&) { throw std::runtime_error("stop"); });
      try {
        z.backward();
      } catch (const std::runtime_error&) {
        ++failures;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(failures == 1);
  CHECK(calls == 4);
}

TEST_CASE(
    "eager.K1 nodes of a graph that is gone are not waited for, even if new ones take their places "
    "in memory") {
  Tensor x = leaf(1);
  int calls = 0;
  {
    Tensor y = x * 2, z = y * 3;
    register_multi_grad_hook({x, y, z}, [&](const variable_list&) { ++calls; });
    z.backward();
    CHECK(calls == 1);
  }
  for (int i = 0; i < 20; ++i) {
    // Nodes come from a pool, so these are where the old ones were.
    ((x * 2) * 3).backward();
    CHECK(calls == 2 + i);
  }
}

TEST_CASE("eager.K6: one handle removes all parts, and a tensor listed twice counts twice") {
  auto a = leaf(1), b = leaf(1);
  int calls = 0;
  HookHandle h = register_multi_grad_hook({a, b, a}, [&](const variable_list& g) {
    ++calls;
    CHECK(g.size() == 3);
    CHECK(value(g[2]) == 1);
  });
  (a + b).backward();
  CHECK(calls == 1);
  CHECK(h.active());
  h.remove();
  CHECK_FALSE(h.active());
  (a + b).backward();
  CHECK(calls == 1);
  CHECK(hooks_of(a).empty());
}

TEST_CASE(
    "eager.K7: a listed leaf that is an explicit input of grad counts, and failed passes leave "
    "nothing behind") {
  auto a = leaf(3);
  int calls = 0;
  register_multi_grad_hook({a}, [&](const variable_list&) { ++calls; });
  autograd::grad({a * 2}, {a});
  CHECK(calls == 1);

  std::weak_ptr<int> watch;
  {
    auto b = leaf(1), c = leaf(1);
    auto mid = b * 2;
    register_multi_grad_hook({mid, c}, [](const variable_list&) {});
    auto keep = std::make_shared<int>(1);
    watch = keep;
    mid.register_hook([keep](const Tensor&) { throw std::runtime_error("stop"); });
    CHECK_THROWS((mid * c).backward());
  }
  CHECK(watch.expired());
}

TEST_CASE("a group of leaves can be hooked after the last of them was accumulated") {
  auto a = leaf(1), b = leaf(2);
  int calls = 0;
  register_multi_post_accumulate_grad_hook({a, b}, [&](const variable_list& leaves) {
    ++calls;
    CHECK(value(leaves[0].grad()) == 2);
    CHECK(value(leaves[1].grad()) == 1);
  });
  (a * b).backward();
  CHECK(calls == 1);
}

namespace {
struct Counts {
  int pack = 0, unpack = 0;
};
}  // namespace

TEST_CASE("a multi-gradient hook dies with its tensors") {
  const auto captured = std::make_shared<int>(0);
  {
    const Tensor a = leaf(1), b = leaf(2);
    register_multi_grad_hook({a, b}, [captured](const variable_list&) {});
  }
  CHECK(captured.use_count() == 1);
}

TEST_CASE("eager.S1: pack runs once at save time, unpack at each access") {
  auto x = leaf(2);
  auto y = constant(3.0);
  Counts n;
  Tensor out;
  {
    autograd::SavedTensorHooks hooks(
        [&](const Tensor& t) {
          ++n.pack;
          return t;
        },
        [&](const Tensor& t) {
          ++n.unpack;
          return t;
        });
    out = x * y;
  }
  CHECK(n.pack == 1);
  CHECK(n.unpack == 0);
  out.backward();
  CHECK(n.pack == 1);
  CHECK(n.unpack == 1);
  CHECK(value(x.grad()) == 3);
}

TEST_CASE("eager.S2: one call per saved slot, not per tensor") {
  auto a = leaf(2);
  Counts n;
  autograd::SavedTensorHooks hooks(
      [&](const Tensor& t) {
        ++n.pack;
        return t;
      },
      [](const Tensor& t) { return t; });
  a* a;
  CHECK(n.pack == 2);
}

TEST_CASE("eager.S3: gradients are computed from what unpack returns") {
  auto run = [](auto pack, auto unpack) {
    auto a = leaf(5);
    Tensor y;
    {
      autograd::SavedTensorHooks hooks(pack, unpack);
      y = a * a;
    }
    y.backward();
    return value(a.grad());
  };
  auto twice = [](const Tensor& t) { return t * 2; };
  auto half = [](const Tensor& t) { return t / 2; };
  auto same_tensor = [](const Tensor& t) { return t; };
  CHECK(run(twice, half) == 10);
  CHECK(run(twice, same_tensor) == 20);

  auto a = leaf(5);
  auto y = a * a;
  static_cast<OpNode&>(*y.grad_fn()).saved()[0].register_hooks(twice, same_tensor);
  y.backward();
  CHECK(value(a.grad()) == 15);
}

TEST_CASE("eager.S3: what unpack returns gets the saved place in the graph") {
  auto a = leaf(3);
  Tensor y;
  {
    autograd::SavedTensorHooks hooks([](const Tensor& t) { return t.detach().clone(); },
                                     [](const Tensor& t) { return t; });
    y = a.square() * a;
  }
  Tensor g = autograd::grad({y}, {a}, {}, {}, true)[0];
  CHECK(value(g) == 27);
  CHECK(value(autograd::grad({g}, {a})[0]) == 18);
}

TEST_CASE(
    "eager.S4: pack runs with recording off, and packing an output by keeping it is allowed") {
  auto a = leaf(1);
  {
    autograd::SavedTensorHooks hooks(
        [](const Tensor& t) {
          CHECK_FALSE(GradMode::is_enabled());
          return t.detach();
        },
        [](const Tensor& t) { return t; });
    exp(a).backward();
  }
  CHECK(value(a.grad()) == doctest::Approx(M_E));
}

TEST_CASE("eager.S5: only the innermost pair applies") {
  auto a = leaf(2), b = leaf(2);
  auto scale = [](double k) { return [k](const Tensor& t) { return t * k; }; };
  Tensor inner, outer;
  {
    autograd::SavedTensorHooks three(scale(3), scale(3));
    {
      autograd::SavedTensorHooks five(scale(5), scale(5));
      inner = a * a;
    }
    outer = b * b;
  }
  inner.backward();
  outer.backward();
  CHECK(value(a.grad()) == 100);
  CHECK(value(b.grad()) == 36);
}

TEST_CASE(
    "eager.S6: tensors saved by a graph-building pass are packed by the pair around that pass") {
  auto pack = [](const Tensor& t) { return t * 2; };
  auto unpack = [](const Tensor& t) { return t; };
  auto second = [&](bool forward, bool backward) {
    auto a = leaf(3);
    Tensor y;
    {
      std::optional<autograd::SavedTensorHooks> hooks;
      if (forward) hooks.emplace(pack, unpack);
      y = pow(a, 3);
    }
    std::optional<autograd::SavedTensorHooks> hooks;
    if (backward) hooks.emplace(pack, unpack);
    Tensor g = autograd::grad({y}, {a}, {}, {}, true)[0];
    return value(autograd::grad({g}, {a}, {}, {}, true)[0]);
  };
  CHECK(second(false, false) == 18);  // 6a, for a = 3
  CHECK(second(true, false) == 36);   // 12a
  CHECK(second(false, true) == 72);   // 24a
  CHECK(second(true, true) == 144);   // 48a
}

TEST_CASE("eager.S6: ambient hooks of another thread do not reach this one") {
  Counts n;
  autograd::SavedTensorHooks hooks(
      [&](const Tensor& t) {
        ++n.pack;
        return t;
      },
      [](const Tensor& t) { return t; });
  std::thread([] { leaf(2) * leaf(3); }).join();
  CHECK(n.pack == 0);
}

TEST_CASE("eager.S7: numbers are never packed") {
  auto a = leaf(2);
  autograd::SavedTensorHooks hooks([](const Tensor&) -> int { throw std::runtime_error("packed"); },
                                   [](int) { return Tensor(); });
  CHECK_NOTHROW((a * 3).backward());
}

TEST_CASE("eager.S8: misuse of saved-tensor hooks is an error") {
  auto a = leaf(2);
  {
    autograd::SavedTensorHooks hooks(
        [](const Tensor& t) {
          t.detach().mul_(2);
          return t;
        },
        [](const Tensor& t) { return t; });
    CHECK_ERROR(a * a, "pack hook changed its argument in place");
  }
  auto b = leaf(2);
  Tensor y;
  {
    autograd::SavedTensorHooks hooks([](const Tensor&) { return 0; }, [](int) { return Tensor(); });
    y = b * b;
  }
  CHECK_ERROR(y.backward(), "unpack hook returned an undefined tensor");

  auto id = [](const Tensor& t) { return t; };
  auto c = leaf(2);
  auto z = c * c;
  auto& slot = static_cast<OpNode&>(*z.grad_fn()).saved()[0];
  slot.register_hooks(id, id);
  CHECK_ERROR(slot.register_hooks(id, id), "already has a pair of hooks");
  z.backward();
  CHECK_ERROR(slot.register_hooks(id, id), "already been freed");
  SavedVariable empty;
  CHECK_ERROR(empty.register_hooks(id, id), "saved no tensor");

  struct Mine {};
  auto d = leaf(2);
  autograd::SavedTensorHooks throwing([](const Tensor& t) { return t; },
                                      [](const Tensor&) -> Tensor { throw Mine(); });
  Tensor w = d * d;
  CHECK_THROWS_AS(w.backward(), Mine);
}

TEST_CASE("eager.S9: a packed tensor that is overwritten later is noticed") {
  auto a = leaf(2);
  auto b = a * 1;
  Tensor y;
  {
    autograd::SavedTensorHooks hooks([](const Tensor& t) { return t; },
                                     [](const Tensor& t) { return t; });
    y = b * b;
  }
  b.detach().mul_(3);
  CHECK_ERROR(y.backward(), "changed by an in-place operation");
}

TEST_CASE("eager.S10: saved-tensor hooks can be disabled with a message") {
  auto id = [](const Tensor& t) { return t; };
  {
    autograd::DisableSavedTensorHooks off("not here");
    CHECK_ERROR(autograd::SavedTensorHooks(id, id), "not here");
    {
      autograd::DisableSavedTensorHooks inner("nor here");
      CHECK_ERROR(autograd::SavedTensorHooks(id, id), "nor here");
    }
    CHECK_ERROR(autograd::SavedTensorHooks(id, id), "not here");
  }
  autograd::SavedTensorHooks on(id, id);
  CHECK_ERROR(autograd::DisableSavedTensorHooks("too late"), "too late");
}

TEST_CASE("eager.S11: unpack runs after the node's pre-hooks, in order of access") {
  auto a = leaf(2), b = leaf(3);
  std::string log;
  Tensor y;
  {
    autograd::SavedTensorHooks hooks([](const Tensor& t) { return t; },
                                     [&](const Tensor& t) {
                                       log += value(t) == 3 ? "b" : "a";
                                       return t;
                                     });
    y = a * b;
  }
  y.grad_fn()->register_prehook([&](const variable_list&) { log += "p"; });
  y.backward();
  CHECK(log == "pba");
}

TEST_CASE("eager.S12: a pair pushed or popped inside unpack neither crashes nor leaks") {
  for (int i = 0; i < 10; ++i) {
    auto a = leaf(2);
    auto scope = std::make_shared<std::unique_ptr<autograd::SavedTensorHooks>>();
    auto id = [](const Tensor& t) { return t; };
    *scope = std::make_unique<autograd::SavedTensorHooks>(id, [scope, id](const Tensor& t) {
      if (*scope) scope->reset();
      else *scope = std::make_unique<autograd::SavedTensorHooks>(id, id);
      return t;
    });
    Tensor y = a * a;
    y.backward();
    scope->reset();
    CHECK(value(a.grad()) == 4);
  }
  CHECK(SavedHookStack::current().pairs.empty());
}

namespace {
struct MakesNan : autograd::Function<MakesNan> {
  static Tensor forward(autograd::AutogradContext*, Tensor x, Tensor y) { return x + y; }
  static variable_list backward(autograd::AutogradContext*, variable_list g) {
    return {g[0], g[0] * NAN};
  }
};
}  // namespace

TEST_CASE("eager.Y1: anomaly mode nests and restores both flags") {
  CHECK_FALSE(AnomalyMode::is_enabled());
  {
    DetectAnomalyGuard outer(false);
    CHECK(AnomalyMode::is_enabled());
    CHECK_FALSE(AnomalyMode::should_check_nan());
    {
      DetectAnomalyGuard inner;
      CHECK(AnomalyMode::should_check_nan());
    }
    CHECK_FALSE(AnomalyMode::should_check_nan());
  }
  CHECK_FALSE(AnomalyMode::is_enabled());
}

TEST_CASE(
    "eager.Y2: the report names the place of the forward call, and says so when there is none") {
  set_warning_handler([](const std::string&) {});
  auto x = leaf(1);
  auto before = MakesNan::apply(x, x);
  DetectAnomalyGuard anomaly;
  CHECK_ERROR(before.backward(), "No forward trace");
  auto y = log(leaf(-1) * 1);
  const std::string message = error_of([&] { (y * leaf(NAN)).backward(); });
  CHECK(contains(message, "compound_hook_test.cpp:"));

  auto p = leaf(3);
  Tensor g = autograd::grad({p.square()}, {p}, {}, {}, true)[0];
  CHECK(contains(anomaly::trace(*g.grad_fn()), "It was made by the backward of square"));
}

TEST_CASE("eager.Y3: a NaN made by a hook is blamed on the hook") {
  set_warning_handler([](const std::string&) {});
  DetectAnomalyGuard anomaly;
  auto bad = [](const Tensor& g) { return g * NAN; };
  auto x = leaf(1);
  auto y = x * 2;
  HookHandle h = y.register_hook(bad, "poison");
  CHECK_ERROR(y.backward({}, true), "tensor hook 'poison'");
  h.remove();
  h = x.register_hook(bad, "leaf poison");
  CHECK_ERROR(y.backward({}, true), "'leaf poison'");
  h.remove();
  h = y.grad_fn()->register_prehook(times_all(NAN), "pre poison");
  CHECK_ERROR(y.backward({}, true), "'pre poison'");
  h.remove();
  h = y.grad_fn()->register_hook(
      [](const variable_list& in, const variable_list&) { return times_all(NAN)(in); },
      "post poison");
  CHECK_ERROR(y.backward({}, true), "'post poison'");
  h.remove();
  x.register_post_accumulate_grad_hook([](const Tensor& l) { l.grad().mul_(NAN); }, "step poison");
  CHECK_ERROR(y.backward(), "'step poison'");
}

TEST_CASE("eager.Y4: the NaN check names node and output, and can be off") {
  set_warning_handler([](const std::string&) {});
  {
    DetectAnomalyGuard anomaly;
    auto out = MakesNan::apply(leaf(1), leaf(1));
    CHECK_ERROR(out.backward(), "output 1 of");
    CHECK_ERROR(MakesNan::apply(leaf(1), leaf(1)).backward(), "MakesNan");
  }
  DetectAnomalyGuard anomaly(false);
  CHECK_NOTHROW(MakesNan::apply(leaf(1), leaf(1)).backward());
}
