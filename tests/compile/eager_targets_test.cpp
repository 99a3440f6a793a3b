/// compiled-hooks.md section 4.3: scenarios of the eager suite that have to pass in a compiled
/// backward as one graph. Those that read values in the middle are in tests/autograd and tests/nn,
/// whose programs run once more with --compiled-backward.
#include "tests/compile/modes.h"

using namespace grapnel;
using autograd::AutogradContext;

namespace {

using Values = std::vector<double>;

Tensor leaf(double v) { return tensor({v}, dtype(kFloat32).requires_grad(true)); }
double value(const Tensor& t) { return t.item<double>(); }
auto times(double k) {
  return [k](const Tensor& g) { return g * k; };
}
variable_list all_times(const variable_list& grads, double k) {
  variable_list out;
  for (const Tensor& g : grads) out.push_back(g.defined() ? g * k : g);
  return out;
}

}  // namespace

TEST_CASE("a compiled pass takes the list of node hooks as it is when the node is visited") {
  in_all_modes({.F = 1, .B = 2}, [](Mode& mode) {
    Tensor x = leaf(1);
    Tensor y = mode.call([&] { return x * 2; });
    HookHandle second;
    y.grad_fn()->register_prehook([&](const variable_list& g) {
      second.remove();
      return all_times(g, 3);
    });
    second = y.grad_fn()->register_prehook([&](const variable_list& g) { return all_times(g, 5); });
    for (const double want : {30.0, 6.0}) {
      x.reset_grad();
      mode.backward([&] { y.backward({}, true); });
      CHECK(value(x.grad()) == want);
    }
  });
}

TEST_CASE(
    "retained gradients are results of the graph: repeated, through in-place changes and through "
    "views") {
  in_all_modes({.F = 1, .B = 2}, [](Mode& mode) {
    Tensor x = leaf(2);
    const auto [h, out] = mode.call([&] {
      Tensor mid = x * 3;
      mid.retain_grad();
      return std::pair(mid, mid * mid);
    });
    mode.backward([&, root = out] { root.backward({}, true); });
    const Tensor first = h.grad();
    CHECK(value(first) == 12);
    mode.backward([&, root = out] { root.backward(); });
    CHECK(value(h.grad()) == 24);
    CHECK(value(first) == 12);
  });
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(1);
    Tensor a = mode.call([&] {
      Tensor copy = x.clone();
      copy.retain_grad();
      copy.mul_(2);
      copy.mul_(2);
      return copy;
    });
    mode.backward([&] { a.backward(); });
    CHECK(value(a.grad()) == 1);
    CHECK(value(x.grad()) == 4);
  });
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(1);
    const auto [base, view, out] = mode.call([&] {
      Tensor b = x.clone(), v = b.slice();
      b.retain_grad();
      v.retain_grad();
      v.mul_(3);
      return std::tuple(b, v, b * 5 + v);
    });
    mode.backward([&, root = out] { root.backward(); });
    CHECK(value(base.grad()) == 6);
    CHECK(value(view.grad()) == 1);
    CHECK(value(x.grad()) == 18);
  });
}

TEST_CASE(
    "tensor hooks, retain-grad, node pre-hooks and post-hooks keep their order in one graph") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(1);
    std::string log;
    const auto [y, out] = mode.call([&] {
      Tensor mid = x * 2;
      mid.grad_fn()->register_hook([&](const variable_list& g, const variable_list&) {
        log += "post ";
        return all_times(g, 10);
      });
      mid.grad_fn()->register_prehook([&](const variable_list& g) {
        log += "pre ";
        return all_times(g, 7);
      });
      mid.retain_grad();
      mid.register_hook([&](const Tensor& g) {
        log += "tensor ";
        return g * 5;
      });
      return std::pair(mid, mid * 3);
    });
    mode.backward([&, root = out] { root.backward(); });
    CHECK(log == "tensor pre post ");
    CHECK(value(y.grad()) == 15);
    CHECK(value(x.grad()) == 2100);
  });
}

TEST_CASE("multi-gradient hooks fire once in a compiled pass, with all gradients or the first") {
  for (const bool all : {true, false})
    in_all_modes({}, [&](Mode& mode) {
      Tensor a = leaf(2), b = leaf(3), unused = leaf(4);
      int calls = 0;
      variable_list seen;
      if (all)
        register_multi_grad_hook({a, b, unused}, [&](const variable_list& grads) {
          ++calls;
          seen = grads;
        });
      else
        register_multi_grad_hook(
            {a, b},
            [&](const Tensor& grad) {
              ++calls;
              seen = {grad};
            },
            MultiGrad::any);
      Tensor out = mode.call([&] { return a * b; });
      mode.backward([&] { out.backward(); });
      CHECK(calls == 1);
      CHECK(value(seen[0]) == 3);
      if (all) {
        CHECK(value(seen[1]) == 2);
        CHECK(!seen[2].defined());
      }
    });
}

TEST_CASE(
    "grad of a leaf and of a non-leaf runs tensor hooks, but node hooks only of nodes that run") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(2);
    int node_hooks = 0;
    const auto [y, out] = mode.call([&] {
      Tensor mid = x * 3;
      mid.register_hook(times(10));
      return std::pair(mid, mid * mid);
    });
    x.register_hook(times(2));
    grad_accumulator(x)->register_prehook([&](const variable_list&) { ++node_hooks; });
    y.grad_fn()->register_prehook([&](const variable_list&) { ++node_hooks; });
    variable_list grads;
    mode.backward([&, mid = y, root = out] { grads = autograd::grad({root}, {mid}, {}, true); });
    CHECK(value(grads[0]) == 120);
    CHECK(node_hooks == 0);
    CHECK(!x.grad().defined());
  });
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(2);
    x.register_hook(times(2));
    Tensor out = mode.call([&] { return x * 3; });
    variable_list grads;
    mode.backward([&] { grads = autograd::grad({out}, {x}); });
    CHECK(value(grads[0]) == 6);
  });
}

TEST_CASE("a post-hook registered by an unpack hook acts in the same compiled pass") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(3), y;
    auto unpack = [&](const Tensor& t) {
      y.grad_fn()->register_hook(
          [](const variable_list& in, const variable_list&) { return all_times(in, 0.5); });
      return t;
    };
    y = mode.call([&] {
      const autograd::SavedTensorHooks hooks([](const Tensor& t) { return t; }, unpack);
      return x.square();
    });
    mode.backward([&] { y.backward(); });
    CHECK(value(x.grad()) == 3);
    y.reset();
  });
}

TEST_CASE(
    "a pass started by a hook of a leaf or a non-leaf is part of the graph, and its callbacks are "
    "its own") {
  for (const bool on_leaf : {true, false})
    in_all_modes({}, [&](Mode& mode) {
      Tensor x = leaf(2);
      std::string log;
      auto hook = [&](const Tensor& g) {
        autograd::queue_callback([&] { log += "outer "; });
        const EnableGradGuard on;
        Tensor inner = g.detach().set_requires_grad(true);
        inner.register_hook(
            [&](const Tensor&) { autograd::queue_callback([&] { log += "inner "; }); });
        (inner * 3).backward();
        return inner.grad() + g;
      };
      if (on_leaf) x.register_hook(hook);
      Tensor out = mode.call([&] {
        Tensor y = x * 4;
        if (!on_leaf) y.register_hook(hook);
        return y;
      });
      mode.backward([&] { out.backward(); });
      CHECK(log == "inner outer ");
      CHECK(value(x.grad()) == (on_leaf ? 7 : 16));
    });
}

TEST_CASE("post-accumulate hooks run in order of registration and see what the one before did") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(1);
    std::string log;
    x.register_post_accumulate_grad_hook([&](const Tensor& t) {
      log += "a";
      t.mutable_grad().add_(1);
    });
    grad_accumulator(x)->register_hook(
        [&](const variable_list&, const variable_list&) { log += "c"; });
    x.register_post_accumulate_grad_hook([&](const Tensor& t) {
      log += "b";
      t.mutable_grad().mul_(2);
    });
    Tensor out = mode.call([&] { return x * 3; });
    mode.backward([&] { out.backward(); });
    CHECK(log == "abc");
    CHECK(value(x.grad()) == 8);
  });
}

TEST_CASE("module backward hooks are inside the graph, also when it is differentiated again") {
  Values want;
  in_all_modes({.F = 1, .B = 2}, [&](Mode& mode) {
    manual_seed(4);
    nn::Linear layer(3, 3);
    int fired = 0;
    layer->register_full_backward_hook(
        [&](nn::Module&, const variable_list& in, const variable_list&) {
          ++fired;
          return all_times(in, 2);
        });
    Tensor x = randn({2, 3}).requires_grad_();
    Tensor out = mode.call([&] { return layer(x).tanh().sum(); });
    Tensor first;
    mode.backward([&] { first = autograd::grad({out}, {x}, {}, true, true)[0]; });
    CHECK(fired == 1);
    mode.backward([&] { first.square().sum().backward(); });
    const Values got = values_of(x.grad());
    if (want.empty()) want = got;
    CHECK(got == want);
  });
}

namespace {
struct WrongShape : autograd::Function<WrongShape> {
  static Tensor forward(AutogradContext*, Tensor x) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list) { return {ones({2})}; }
};
struct TooFew : autograd::Function<TooFew> {
  static Tensor forward(AutogradContext*, Tensor x, Tensor y) { return x + y; }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0]}; }
};
}  // namespace

TEST_CASE("invalid gradients are refused in a compiled pass as in an eager one") {
  in_all_modes({.F = 2, .B = 0}, [](Mode& mode) {
    Tensor x = ones({3}, requires_grad()), y = ones({3}, requires_grad());
    Tensor wrong = mode.call([&] { return WrongShape::apply(x).sum(); });
    CHECK_THROWS_WITH_AS(
        mode.backward([&] { wrong.backward(); }),
        doctest::Contains("returned a gradient of shape [2] for input 0, expected [3]"), Error);
    Tensor few = mode.call([&] { return TooFew::apply(x, y).sum(); });
    CHECK_THROWS_WITH_AS(mode.backward([&] { few.backward(); }),
                         doctest::Contains("returned 1 gradients, expected 2"), Error);
    CHECK(!x.grad().defined());
  });
}
