#include "grapnel/autograd/op_node.h"
#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

namespace {
struct TwoTimes : autograd::Function<TwoTimes> {
  static variable_list forward(autograd::AutogradContext*, Tensor x, Tensor y) {
    return {x * 1, y * 1};
  }
  static variable_list backward(autograd::AutogradContext*, variable_list g) { return g; }
};
struct ThreeSlots : autograd::Function<ThreeSlots> {
  static variable_list forward(autograd::AutogradContext* ctx, Tensor x) {
    ctx->set_materialize_grads(false);
    return {x * 1, x * 1, x * 1};
  }
  static variable_list backward(autograd::AutogradContext*, variable_list g) {
    Tensor sum;
    for (const Tensor& t : g)
      if (t.defined()) sum = sum.defined() ? sum + t : t;
    return {sum};
  }
};
}  // namespace

TEST_CASE("eager.N1: a pre-hook gets all slot gradients and may replace them") {
  auto x = leaf(1), y = leaf(1);
  auto out = TwoTimes::apply(x, y);
  int calls = 0;
  out[0].grad_fn()->register_prehook([&](const variable_list& g) {
    ++calls;
    CHECK(g.size() == 2);
    return variable_list{g[0] * 2, g[1] * 2};
  });
  (out[0] + out[1] * 3).backward();
  CHECK(calls == 1);
  CHECK(value(x.grad()) == 2);
  CHECK(value(y.grad()) == 6);
}

TEST_CASE("eager.N2: a post-hook sees what the node produced and what it consumed") {
  auto a = leaf(1);
  auto b = a * 2;
  NodePtr n = b.grad_fn();
  n->register_prehook(times_all(2));
  n->register_prehook([](const variable_list&) {});
  n->register_prehook(times_all(2));
  n->register_prehook([](const variable_list& g) { return g; });
  n->register_prehook(times_all(2));
  int posts = 0;
  for (int i = 0; i < 2; ++i)
    n->register_hook([&](const variable_list& in, const variable_list& out) {
      ++posts;
      CHECK(value(out[0]) == 8);
      CHECK(value(in[0]) == 16);
    });
  b.backward();
  CHECK(posts == 2);
  CHECK(value(a.grad()) == 16);
}

TEST_CASE("eager.N3: a list hook may drop a gradient but not invent one") {
  auto x = leaf(1);
  auto o = ThreeSlots::apply(x);
  NodePtr n = o[0].grad_fn();
  HookHandle h = n->register_prehook(
      [](const variable_list& g) { return variable_list{g[0] * 2, Tensor(), g[2] * 2}; });
  (o[0] + o[1] + o[2]).backward({}, true);
  CHECK(value(x.grad()) == 4);
  h.remove();
  n->register_prehook([](const variable_list& g) { return variable_list{g[0], g[1], g[0]}; });
  CHECK_ERROR((o[0] * 1).backward({}, true), "returned a gradient where there was none");
}

TEST_CASE("eager.N4: wrong results of list hooks are errors that name the hook") {
  auto x = leaf(1);
  auto y = x * 2;
  NodePtr n = y.grad_fn();
  HookHandle h = n->register_hook(
      [](const variable_list&, const variable_list&) { return variable_list{}; }, "bad post");
  CHECK_ERROR(y.backward({}, true), "'bad post'");
  CHECK_ERROR(y.backward({}, true), "returned 0 gradients, expected");
  h.remove();
  h = n->register_hook([](const variable_list& in, const variable_list&) {
    variable_list longer = in;
    longer.push_back(in[0]);
    return longer;
  });
  CHECK_ERROR(y.backward({}, true), "gradients, expected");
  h.remove();
  h = n->register_prehook([](const variable_list&) { return variable_list{ones({2}, kFloat64)}; });
  CHECK_ERROR(y.backward({}, true), "changed the size of the gradient from [1] to [2]");
}

TEST_CASE("eager.N5: both kinds run in order of registration, each seeing the previous result") {
  auto x = leaf(1);
  auto y = x * 1;
  std::vector<double> seen;
  NodePtr n = y.grad_fn();
  for (double k : {2.0, 3.0})
    n->register_prehook([&, k](const variable_list& g) {
      seen.push_back(value(g[0]));
      return variable_list{g[0] * k};
    });
  for (double k : {5.0, 7.0})
    n->register_hook([&, k](const variable_list& g, const variable_list&) {
      seen.push_back(value(g[0]));
      variable_list out = g;
      out[0] = g[0] * k;
      return out;
    });
  y.backward();
  CHECK(seen == Values{1, 2, 6, 30});
  CHECK(value(x.grad()) == 210);
}

TEST_CASE("eager.N6: kinds keep their order whatever the order of registration") {
  auto a = leaf(1);
  auto b = a * 2;
  std::string log;
  auto th = [&](const Tensor&) { log += "t"; };
  auto pre = [&](const variable_list&) { log += "p"; };
  b.grad_fn()->register_prehook(pre);
  b.register_hook(th);
  b.grad_fn()->register_prehook(pre);
  a.register_hook(th);
  grad_accumulator(a)->register_prehook(pre);
  a.register_hook(th);
  b.backward({}, true);
  CHECK(log == "tppttp");
  log.clear();
  autograd::grad({b}, {a});
  CHECK(log == "tpptt");
}

TEST_CASE("eager.N7: tensor hook, retain-grad, pre-hook and post-hook in one chain") {
  auto a = leaf(1);
  auto b = a * 2;
  auto c = b * 2;
  b.register_hook(times(10));
  b.retain_grad();
  b.grad_fn()->register_prehook(times_all(3));
  b.grad_fn()->register_hook(
      [](const variable_list& in, const variable_list&) { return times_all(5)(in); });
  c.backward();
  CHECK(value(b.grad()) == 20);
  CHECK(value(a.grad()) == 600);
}

TEST_CASE("eager.N8: node hook lists are snapshots, too") {
  auto x = leaf(1);
  auto y = x * 2;
  NodePtr n = y.grad_fn();
  int second = 0;
  HookHandle pre2, pre3;
  n->register_prehook([&](const variable_list&) {
    pre2.remove();
    pre3.remove();
  });
  pre2 = n->register_prehook([&](const variable_list&) { ++second; });
  pre3 = n->register_prehook([&](const variable_list&) {});
  pre3.remove();
  y.backward({}, true);
  CHECK(second == 1);
  y.backward();
  CHECK(second == 1);
}

TEST_CASE(
    "eager.N9: a post-hook registered while its node runs takes effect and gets the real "
    "arguments") {
  auto x = leaf(3);
  Tensor y;
  {
    autograd::SavedTensorHooks hooks(
        [](const Tensor& t) { return t; },
        [&](const Tensor& t) {
          y.grad_fn()->register_hook([](const variable_list& in, const variable_list& out) {
            REQUIRE(out.size() == 1);
            CHECK(value(out[0]) == 1);
            return times_all(0.5)(in);
          });
          return t;
        });
    y = x.square();
  }
  y.backward();
  CHECK(value(x.grad()) == 3);
}

TEST_CASE(
    "eager.N10: what a node produces is reduced to its input, and what a hook makes of it is "
    "checked again") {
  auto x = leaf(2);
  auto y = x * constant({1, 2, 3});
  std::vector<int64_t> shape;
  y.grad_fn()->register_hook(
      [&](const variable_list& in, const variable_list&) { shape = in[0].sizes().vec(); });
  y.sum().backward({}, true);
  CHECK(shape == std::vector<int64_t>{1});
  CHECK(value(x.grad()) == 6);
  y.grad_fn()->register_hook([&](const variable_list& in, const variable_list&) {
    return variable_list{in[0].expand({3}), in[1]};
  });
  CHECK_ERROR(y.sum().backward(), "changed the size of the gradient");
}

TEST_CASE("eager.N11: hooks of the accumulate node see one gradient and produce none") {
  auto a = leaf(1);
  a.register_hook(times(2));
  NodePtr n = grad_accumulator(a);
  n->register_prehook([](const variable_list& g) { CHECK(value(g[0]) == 2); });
  HookHandle h = n->register_hook([](const variable_list& in, const variable_list& out) {
    CHECK(in.empty());
    CHECK(value(out[0]) == 2);
  });
  (a * 1).backward();
  h.remove();
  n->register_hook([](const variable_list&, const variable_list& out) { return out; });
  CHECK_ERROR((a * 1).backward(), "returned 1 gradients, expected 0");
}

TEST_CASE("eager.N12: hooks registered on a leaf's accumulate node live on the leaf") {
  auto t = leaf(1);
  int calls = 0;
  grad_accumulator(t)->register_prehook([&](const variable_list&) { ++calls; });
  (t * 2).backward();
  CHECK(calls == 1);
  (t * 2).backward();
  CHECK(calls == 2);
}

TEST_CASE("eager.N13: hooks survive a change of the leaf's storage to another type") {
  auto t = ones({1}, requires_grad());
  int calls = 0;
  grad_accumulator(t)->register_prehook([&](const variable_list& g) {
    ++calls;
    CHECK(g[0].dtype() == kFloat64);
  });
  t.set_data(ones({1}, kFloat64));
  (t * 2).backward();
  CHECK(calls == 1);
  CHECK(t.grad().dtype() == kFloat64);
}

TEST_CASE("eager.N14: all node hooks have handles that remove them") {
  auto x = leaf(1);
  auto y = x * 2;
  HookHandle pre = y.grad_fn()->register_prehook(times_all(10));
  HookHandle post = y.grad_fn()->register_hook(
      [](const variable_list& in, const variable_list&) { return times_all(10)(in); });
  pre.remove();
  post.remove();
  y.backward();
  CHECK(value(x.grad()) == 2);
}

namespace {
struct ScalePre final : FunctionPreHook {
  double k;
  explicit ScalePre(double factor) : k(factor) {}
  variable_list operator()(const variable_list& g) override { return times_all(k)(g); }
};
struct ScalePost final : FunctionPostHook {
  double k;
  explicit ScalePost(double factor) : k(factor) {}
  variable_list operator()(const variable_list& in, const variable_list&) override {
    return times_all(k)(in);
  }
};
struct CountLeaf final : PostAccumulateGradHook {
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  void operator()(const Tensor&) override { ++*calls; }
};
}  // namespace

TEST_CASE("eager.N15: hooks of every origin on one node run in strict order of registration") {
  auto x = leaf(1);
  auto y = x * 1;
  NodePtr n = y.grad_fn();
  std::vector<double> seen;
  auto look = [&](const variable_list& g) { seen.push_back(value(g[0])); };
  n->register_prehook(look);
  n->add_pre_hook(std::make_unique<ScalePre>(2));
  n->register_prehook(look);
  n->register_prehook(ScalePre(5));
  n->register_prehook(look);
  n->add_post_hook(std::make_unique<ScalePost>(3));
  n->register_hook(ScalePost(7));
  y.backward();
  CHECK(seen == Values{1, 2, 10});
  CHECK(value(x.grad()) == 210);
}

TEST_CASE("eager.N16: hooks of every origin on one leaf share one list") {
  auto x = leaf(1);
  x.register_hook(times(2));
  x.register_hook(ScalePre(3));
  x.register_hook(times(5));
  CountLeaf counter;
  x.register_post_accumulate_grad_hook(counter);
  (x * 1).backward();
  CHECK(value(x.grad()) == 30);
  CHECK(*counter.calls == 1);
}

TEST_CASE("a gradient that a hook keeps does not change when another one is added to it") {
  auto x = leaf({1, 2});
  const Tensor y = x * 2, first = y * 3, last = y * 5;
  Tensor kept;
  last.grad_fn()->register_hook(
      [&](const variable_list& grad_inputs, const variable_list&) { kept = grad_inputs[0]; });
  (first + last).sum().backward();
  CHECK(values(kept) == Values{5, 5});
  CHECK(values(x.grad()) == Values{16, 16});
}
