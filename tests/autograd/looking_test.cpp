/// Whoever is given a gradient may look at it; see Note [Looking, not writing] in autograd/visit.h.
#include "tests/autograd/vectors.h"

namespace grapnel::test {

namespace {

constexpr const char* kWritten = "changed its argument in place";

/// Two leaves whose gradients may share one buffer, and what a write through it must not do: be
/// silent.
struct Shared {
  Tensor a = leaf({1, 1}), b = leaf({1, 1}), z = a + b;

  void backward() { (z * 1).backward(ones({2}, kFloat64)); }
  void expect_error(const char* part) {
    CHECK_ERROR(backward(), part);
    for (const Tensor& t : {a, b})
      if (t.grad().defined()) CHECK(values(t.grad()) == Values{1, 1});
  }
};

struct Doubles : autograd::Function<Doubles> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static variable_list backward(autograd::AutogradContext*, variable_list g) {
    g[0].mul_(2);
    return {g[0]};
  }
};

}  // namespace

TEST_CASE("a post-hook of a node may write neither to what the node produced nor to what it consumed") {
  for (const bool produced : {false, true}) {
    Shared s;
    s.z.grad_fn()->register_hook(
        [=](const variable_list& in, const variable_list& out) { (produced ? in : out)[0].mul_(100); },
        "spoil");
    s.expect_error(kWritten);
  }
}

TEST_CASE("a pre-hook of a node may not write to any of its arguments") {
  Shared s;
  s.z.grad_fn()->register_prehook([](const variable_list& g) { g[0].mul_(100); });
  s.expect_error(kWritten);
}

TEST_CASE("multi-gradient hooks may not write to gradients, not even to those that came earlier") {
  for (const size_t which : {0, 1}) {
    Shared s;
    register_multi_grad_hook(
        {s.a, s.b}, [=](const variable_list& g) { g[which].mul_(100); }, MultiGrad::all, "spoil");
    s.expect_error(kWritten);
  }
  Shared s;
  register_multi_grad_hook({s.a, s.b}, [](const Tensor& g) { g.mul_(100); }, MultiGrad::any);
  s.expect_error(kWritten);
}

TEST_CASE("what is returned may not be an excuse: a written argument is an error all the same") {
  Shared s;
  s.z.register_hook([](const Tensor& g) { return g.mul_(2); });
  s.expect_error(kWritten);
}

TEST_CASE("an opaque hook may not write to its argument when the graph calls it") {
  for (const bool node : {false, true})
    for (const bool recorded : {false, true}) {
      Shared s;
      if (node)
        s.z.grad_fn()->register_prehook(opaque([](const variable_list& g) { g[0].mul_(100); }));
      else s.z.register_hook(opaque([](const Tensor& g) { g.mul_(100); }), "spoil");
      std::optional<CompiledBackward> scope;
      if (recorded) scope.emplace();
      CHECK_ERROR(s.backward(), kWritten);
    }
}

TEST_CASE("a function that a hook calls may write to tensors of the hook's own") {
  Tensor w = leaf({1, 1});
  const Tensor sum = constant({0, 0});
  w.register_hook(opaque([&](const Tensor& g) { sum.add_(g); }));
  (w * 2).sum().backward();
  CompiledBackward compiled;
  (w * 2).sum().backward();
  CHECK(values(sum) == Values{4, 4});
}

TEST_CASE("a hook that kept a gradient cannot change it before it has arrived everywhere") {
  // The later hook is of every kind that is not given the gradient itself.
  for (const int kind : {0, 1, 2, 3}) {
    CAPTURE(kind);
    auto a = leaf({1, 1}), b = leaf({1, 1});
    auto y = a * 1;
    auto z = y + b;  // y's gradient is on its way while b's is accumulated
    Tensor kept;
    z.register_hook([&](const Tensor& g) { kept = g; });
    const auto spoil = [&](auto&&...) { kept.mul_(100); };
    if (kind == 0) b.register_hook(spoil);
    if (kind == 1) b.register_post_accumulate_grad_hook([&](const Tensor&) { kept.mul_(100); });
    if (kind == 2) grad_accumulator(b)->register_hook(spoil);
    if (kind == 3) grad_accumulator(b)->register_prehook(spoil);
    const std::string message = error_of([&] { z.backward(ones({2}, kFloat64)); });
    CAPTURE(message);
    CHECK((contains(message, "was changed in place before it got there") ||
           contains(message, kWritten)));
    CHECK_FALSE(a.grad().defined());
  }
}

TEST_CASE("a result of grad() cannot be changed before the pass has ended") {
  auto a = leaf({1, 1}), b = leaf({1, 1});
  auto z = a + b;
  Tensor kept;
  a.register_hook([&](const Tensor& g) {
    kept = g;
    autograd::queue_callback([&] { kept.mul_(100); });
  });
  CHECK_ERROR(autograd::grad({z * 1}, {a, b}, {ones({2}, kFloat64)}),
              "a result was changed in place");
}

TEST_CASE("an unpack hook cannot change a gradient on its way") {
  auto a = leaf({1, 1}), b = leaf({1, 1});
  Tensor kept, y;
  const auto product = [&] {
    autograd::SavedTensorHooks hooks([](const Tensor& t) { return t.detach(); },
                                     [&](const Tensor& t) {
                                       kept.mul_(100);
                                       return t;
                                     });
    return b * b;
  };
  for (const bool own : {false, true}) {
    // The gradient of the node that unpacks, or one that waits at another node.
    Tensor x = own ? product() : a * 1;
    Tensor z = own ? x + a : x + product();
    z.register_hook([&](const Tensor& g) { kept = g; });
    CHECK_ERROR(z.backward(ones({2}, kFloat64)), own ? "an unpack hook" : "in place");
    CHECK_FALSE(b.grad().defined());
  }
}

TEST_CASE("the backward of a function may not write to the gradients it is given") {
  auto a = leaf({1, 1}), b = leaf({1, 1});
  auto z = Doubles::apply(a) + b;
  CHECK_ERROR(z.backward(ones({2}, kFloat64)), "changed a gradient that it was given in place");
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("a gradient over the memory of a grad() is not added to itself on its way") {
  auto w = leaf({1, 1}), b = leaf({1, 1});
  (w * 3).sum().backward();
  CHECK_ERROR((b * 1 + w).backward(w.grad()), "is that of some grad() which was added to");
  CHECK_FALSE(b.grad().defined());
}

TEST_CASE("leaf.grad() is the leaf's: hooks that are given the leaf or its node may change it") {
  auto a = leaf({1, 1}), b = leaf({1, 1});
  a.register_post_accumulate_grad_hook([](const Tensor& leaf) { leaf.mutable_grad().mul_(10); });
  grad_accumulator(b)->register_hook(
      [&](const variable_list&, const variable_list&) { b.mutable_grad().mul_(10); });
  register_multi_post_accumulate_grad_hook({a, b}, [](const variable_list& leaves) {
    for (const Tensor& t : leaves) t.mutable_grad().add_(1);
  });
  (a + b).sum().backward();
  CHECK(values(a.grad()) == Values{11, 11});
  CHECK(values(b.grad()) == Values{20, 20});
}

}  // namespace grapnel::test
