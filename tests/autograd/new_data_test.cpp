/// set_data between forward and backward, and gradients that do not fit their tensor.
#include "tests/autograd/vectors.h"

namespace grapnel::test {

TEST_CASE("a gradient of a graph that was made before set_data changed shape or type is an error") {
  const Tensor data[] = {ones({2, 3, 50}), ones({100}).t(), ones({}), ones({40, 100}).t(),
                         ones({10}, kFloat64)};
  for (const Tensor& other : data) {
    CAPTURE(other.shape());
    Tensor w = ones({10}, requires_grad());
    w.set_name("scale");
    int seen = 0;
    w.register_hook([&](const Tensor&) { ++seen; });
    const Tensor y = w * 2;
    w.set_data(other);
    CHECK_ERROR(y.backward(ones({10})), "the parameter 'scale' of shape [10] and type f32");
    CHECK_FALSE(w.grad().defined());
    CHECK(seen == 0);
    // The next graph is made of the data as it is now.
    (w * 2).sum().backward();
    CHECK(w.grad().shape() == other.shape());
    CHECK(w.grad().dtype() == other.dtype());
    CHECK(seen == 1);
  }
}

TEST_CASE("a gradient that has to be copied does not fit a leaf of another layout either") {
  Tensor w = ones({100, 8}, requires_grad());
  const Tensor y = w.t().contiguous();
  w.set_data(ones({4, 1000}).t());
  CHECK_ERROR(y.backward(ones({8, 100})), "set_data() gave it data of shape [1000, 4]");
}

TEST_CASE("grad() of a leaf whose shape set_data changed says so") {
  Tensor w = ones({4}, requires_grad());
  const Tensor y = (w * 2).sum();
  w.set_data(ones({5}));
  CHECK_ERROR(autograd::grad({y}, {w}), "set_data() gave it data of shape [5]");
}

TEST_CASE("data of equal shape and type keeps the leaf's place in graphs made before") {
  Tensor w = leaf({1, 2});
  int fired = 0;
  w.register_hook([&](const Tensor&) { ++fired; });
  const Tensor before = w * 2;
  w.set_data(constant({10, 20}));
  (before + w * 3).sum().backward();
  CHECK(values(w.grad()) == Values{5, 5});
  CHECK(fired == 1);
  const Tensor again = (w * 2).sum();
  w.set_data(constant({0, 0}));
  CHECK(values(autograd::grad({again}, {w})[0]) == Values{2, 2});
}

TEST_CASE("a formula does not compute with data that set_data put in the place of the leaf's") {
  Tensor w = leaf({1, 2});
  const Tensor y = (w * w).sum();
  w.set_data(constant({10, 20}));
  CHECK_ERROR(y.backward(), "a leaf needed for the gradient of mul was given other data");
  CHECK_ERROR(y.backward(), "Run backward before set_data()");
  const Tensor z = (w * w).sum();
  w.set_data(w.detach());  // the same memory
  z.backward();
  CHECK(values(w.grad()) == Values{20, 40});
}

TEST_CASE("a hook that gives its leaf another shape ends the pass before grad() is written") {
  Tensor x = ones({3}, requires_grad());
  const Tensor large = ones({1000}), small = ones({4});
  HookHandle h = x.register_hook([&](const Tensor&) { x.set_data(large); }, "grow");
  CHECK_ERROR((x * 2).sum().backward(), "set_data() gave it data of shape [1000]");
  CHECK_FALSE(x.grad().defined());
  h.remove();
  x.set_data(large);  // a recorded pass that fails takes it back

  // After the write it is the next pass that has to begin with a clean grad().
  HookHandle after =
      x.register_post_accumulate_grad_hook([&](const Tensor& t) { t.set_data(small); });
  (x * 2).sum().backward();
  after.remove();
  CHECK_ERROR((x * 2).sum().backward(), "Clear it first: reset_grad()");
  CHECK(x.grad().shape() == Shape{1000});
  x.reset_grad();
  (x * 2).sum().backward();
  CHECK(x.grad().shape() == Shape{4});
}

TEST_CASE("a hook cannot give a gradient another shape with set_data") {
  Tensor x = ones({3}, requires_grad()), y = ones({3}, requires_grad());
  const Tensor z = x + y;
  z.register_hook([](const Tensor& g) { g.set_data(ones({1000, 2})); }, "spoil");
  CHECK_ERROR(z.sum().backward(), "changed its argument in place");
}

TEST_CASE("a gradient is neither stretched nor shortened to be added to an existing one") {
  Tensor w = leaf({1});
  w.mutable_grad() = constant({1, 2, 3});
  CHECK_ERROR((w * 2).sum().backward(), "grad() of the parameter of shape [1] is f64 of shape [3]");
  CHECK_ERROR((w * 2).sum().backward({}, {}, true), "Clear it first");
  CHECK(values(w.grad()) == Values{1, 2, 3});

  Tensor wide = ones({2}, dtype(kFloat64).requires_grad(true));
  wide.mutable_grad() = ones({2});  // would lose half of every digit
  CHECK_ERROR((wide * 2).sum().backward(), "is f32 of shape [2]");

  Tensor y = leaf({1, 2}) * 2;
  y.retain_grad();
  y.mutable_grad() = constant({1});
  CHECK_ERROR(y.sum().backward(), "retain_grad: grad() of the tensor is f64 of shape [1]");
}

TEST_CASE("an optimiser does not step with a gradient of another shape") {
  for (const bool adam : {false, true}) {
    Tensor w = ones({4}, requires_grad());
    std::unique_ptr<optim::Optimizer> optimizer;
    if (adam) optimizer = std::make_unique<optim::Adam>(std::vector<Tensor>{w}, 0.1);
    else optimizer = std::make_unique<optim::SGD>(std::vector<Tensor>{w}, 0.1);
    (w * 2).sum().backward();
    w.set_data(ones({4, 4}));
    CHECK_ERROR(optimizer->step(), "grad() of parameter 0 has shape [4], the parameter itself [4, 4]");
    CHECK(values(w) == Values(16, 1.0));
  }
}

}  // namespace grapnel::test
