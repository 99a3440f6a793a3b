/// In-place changes whose operands share memory with what is changed: gradients read the operands as they were.
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

TEST_CASE("a view without elements may lie anywhere") {
  const Tensor x = zeros({0}, dtype(kFloat32).requires_grad(true));
  const Tensor y = x * 1;
  const Tensor view = y.as_strided({1, 0}, {1, 1}, 3);
  y.mul_(2);
  CHECK_FALSE(view.is_leaf());
}

}  // namespace grapnel::test
