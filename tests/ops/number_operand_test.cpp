#include "grapnel/ops/number_operand.h"

#include <doctest/doctest.h>

#include <thread>

#include "grapnel/grapnel.h"

using namespace grapnel;

TEST_CASE("numbers that gradients keep are not overwritten by the numbers of later calls") {
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  const Tensor a = x * 2.0, b = x * 3, c = 5.0 * x;
  const Tensor later = x.detach() * 7.0;
  (a + b + c).sum().backward();
  CHECK(equal(x.grad(), tensor({10.0, 10.0})));
  CHECK(equal(later, tensor({7.0, 14.0})));
}

TEST_CASE("a number takes the type of each call, whatever the thread's last one was") {
  const Tensor i = tensor({4, 6});
  CHECK((i * 2).dtype() == kInt64);
  CHECK((i * 2.5).dtype() == kFloat32);
  CHECK((i * true).dtype() == kInt64);
  CHECK(equal(i * true, i));
  CHECK(equal(i / 2, tensor({2.0f, 3.0f})));
}

TEST_CASE("a number operand that somebody keeps is not used again") {
  Tensor kept;
  {
    const NumberOperand two(2.0);
    kept = two;
  }
  Tensor view;
  {
    const NumberOperand three(3.0);
    view = static_cast<const Tensor&>(three).detach();
  }
  const NumberOperand four(4.0), five(5);
  CHECK(kept.item<double>() == 2);
  CHECK(view.item<double>() == 3);
  CHECK(static_cast<const Tensor&>(four).item<double>() == 4);
  CHECK(static_cast<const Tensor&>(five).item<int64_t>() == 5);
}

TEST_CASE("numbers are written into traces when they are called with") {
  auto f = compile([](const Tensor& x) { return (x * 2.0 + 3.0) * 4.0; });
  const Tensor x = tensor({1.0, 2.0});
  CHECK(equal(f(x), tensor({20.0, 28.0})));
}

TEST_CASE("numbers may be used while a thread ends") {
  struct AtEnd {
    Tensor* result;
    ~AtEnd() { *result = tensor({1.0}) * 3.0 + 4.0; }
  };
  Tensor result;
  std::thread([&] {
    static thread_local AtEnd at_end{nullptr};
    at_end.result = &result;
    const Tensor first = tensor({1.0}) * 2.0;  // after it, so that it ends before
    CHECK(first.item<double>() == 2);
  }).join();
  CHECK(result.item<double>() == 7);
}
