/// In-place changes whose operands share memory with what is changed: gradients read the operands
/// as they were.
#include "tests/autograd/vectors.h"

namespace grapnel::test {

TEST_CASE("a tensor multiplied by itself in place has the gradient of its square") {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 1;
  y.mul_(y);
  y.sum().backward();
  CHECK(values(x.grad()) == Values{4, 6});
}

TEST_CASE("an operand that is a view of the changed tensor counts as it was before the change") {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 1;
  y.mul_(y[0]);
  y.sum().backward();
  CHECK(values(x.grad()) == Values{7, 2});
}

TEST_CASE("a constant operand that shares the memory counts as it was, too") {
  const Tensor x = leaf({2, 4});
  Tensor y = x * 1;
  y.div_(y.detach());
  y.sum().backward();
  CHECK(values(x.grad()) == Values{0.5, 0.25});
}

TEST_CASE("what an in-place change keeps of the old value can be differentiated again") {
  const Tensor x = leaf(2), w = leaf(3);
  Tensor y = x * x;
  y.mul_(w);
  const Tensor dw = autograd::grad({y}, {w}, {}, true, true)[0];  // x * x
  CHECK(value(autograd::grad({dw}, {x})[0]) == 4);
}

TEST_CASE("a change in place of a tensor by itself leaves no memory behind") {
  const size_t before = memory_stats().in_use;
  {
    const Tensor x = ones({100}, requires_grad());
    Tensor y = x.sin();
    y.mul_(y);
    y[0].mul_(y[1]);
  }
  CHECK(memory_stats().in_use == before);
}

namespace {
struct SquareOf : autograd::Function<SquareOf> {
  static Tensor forward(autograd::AutogradContext* ctx, Tensor x) {
    ctx->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(autograd::AutogradContext* ctx, variable_list grads) {
    return {grads[0] * 2 * ctx->get_saved_variables()[0]};
  }
};

/// Whether what `change` makes of a tensor with 100 ones, and of a leaf of that shape, is freed
/// when both are let go.
bool leaves_nothing(void (*change)(Tensor ones, Tensor leaf)) {
  const size_t before = memory_stats().in_use;
  change(ones({100}), ones({100}, requires_grad()));
  return memory_stats().in_use == before;
}
}  // namespace

TEST_CASE("a tensor changed by what was computed from it is freed without a backward pass") {
  CHECK(leaves_nothing([](Tensor, Tensor x) {
    Tensor c = cat({x, x});
    c.add_(c.sin());
  }));
  CHECK(leaves_nothing([](Tensor, Tensor x) {
    Tensor c = cat({x, x});
    c.add_(SquareOf::apply(c));
  }));
  // A constant, which becomes a part of the graph by the change.
  CHECK(leaves_nothing([](Tensor y, Tensor x) { y.add_(x * y); }));
  // Through a view, on both sides.
  CHECK(leaves_nothing([](Tensor, Tensor x) {
    Tensor c = x.sin();
    c.narrow(0, 0, 50).add_(c.narrow(0, 50, 50).sin());
  }));
}

TEST_CASE(
    "a leaf that stops requiring grad and is changed by what was computed from it is freed, too") {
  CHECK(leaves_nothing([](Tensor, Tensor x) {
    const Tensor y = x.sin();
    x.set_requires_grad(false);
    x.add_(y);
  }));
}

TEST_CASE(
    "hooks of a leaf that became the result of an op stay with the graph that used it as a leaf") {
  const Tensor x = leaf(2);
  Values seen;
  x.register_hook([&](const Tensor& g) { seen.push_back(value(g)); });
  const Tensor y = x * 3;
  x.set_requires_grad(false);
  x.add_(y);  // 8
  y.backward();
  CHECK(seen == Values{3});
  CHECK(!x.grad().defined());
}

TEST_CASE("a view without elements may lie anywhere") {
  const Tensor x = zeros({0}, dtype(kFloat32).requires_grad(true));
  const Tensor y = x * 1;
  const Tensor view = y.as_strided({1, 0}, {1, 1}, 3);
  y.mul_(2);
  CHECK_FALSE(view.is_leaf());
}

TEST_CASE("a view that is a leaf of its own obeys the leaf rule, and keeps nothing alive") {
  const size_t before = memory_stats().in_use;
  {
    const Tensor base = ones({64, 64});
    const Tensor view = base.narrow(0, 0, 32).requires_grad_();
    REQUIRE(view.is_leaf());
    CHECK_THROWS_WITH_AS(view.fill_(2), doctest::Contains("a leaf that requires grad"), Error);
    CHECK_THROWS_WITH_AS(view.mul_(ones({32, 64})), doctest::Contains("a leaf that requires grad"),
                         Error);
    base.mul_(2);  // the base is nobody's leaf
    CHECK(view.is_leaf());
    CHECK(view.sum().item<float>() == 2 * 32 * 64);
    {
      NoGradGuard no_grad;
      view.fill_(3);
    }
    view.sum().backward();
    CHECK(equal(view.grad(), ones({32, 64})));
  }
  CHECK(memory_stats().in_use == before);
}

TEST_CASE("a leaf that was made of a view has nothing to do with the history of its base") {
  const size_t before = memory_stats().in_use;
  {
    const Tensor base = ones({64, 64}), row = base.diagonal().requires_grad_(),
                 twice = base.narrow(0, 0, 1).requires_grad_() * 2;
    CHECK_FALSE(row.is_view());
    base.mul_(row);  // the base is now computed from what it was made of
    base.add_(twice);
    CHECK(row.is_leaf());
    CHECK(row.equal(base.diagonal()));  // it still shares memory
    base.sum().backward();
    CHECK(row.grad().equal(full({64}, 64.0)));
  }
  {
    // What is saved is seen to, as for any other leaf.
    const Tensor base = ones({4}), leaf = base.narrow(0, 0, 2).requires_grad_();
    const Tensor y = leaf * leaf;
    base.mul_(ones({4}, requires_grad()));
    CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("in-place"), Error);
  }
  {
    // A parameter may be a view of something that requires grad itself.
    const Tensor base = ones({4}, requires_grad());
    Tensor leaf;
    {
      NoGradGuard no_grad;
      leaf = base.narrow(0, 0, 2);
    }
    leaf.requires_grad_();
    (leaf * 3).sum().backward();
    CHECK(leaf.grad().equal(full({2}, 3.0)));
    CHECK_FALSE(base.grad().defined());
  }
  CHECK(memory_stats().in_use == before);
}

}  // namespace grapnel::test
