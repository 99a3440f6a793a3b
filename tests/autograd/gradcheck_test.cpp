#include "grapnel/autograd/gradcheck.h"

#include <doctest/doctest.h>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "tests/ops/error_text.h"

using namespace grapnel;
using autograd::gradcheck;
using autograd::gradgradcheck;

namespace {

Tensor leaf(std::vector<double> values) {
  return tensor(values, dtype(kFloat64).requires_grad(true));
}

/// x^2, whose second factor hides from autograd: the gradient is half of what it should be.
variable_list wrong_square(const variable_list& in) { return {in[0] * in[0].detach()}; }

}  // namespace

TEST_CASE("gradcheck accepts a right gradient, of several outputs and inputs") {
  const Tensor x = leaf({0.5, -1.0}), y = leaf({2.0, 3.0});
  CHECK(gradcheck(
      [](const variable_list& in) -> variable_list { return {in[0] * in[1], in[0].sin().sum()}; },
      {x, y}));
  CHECK(gradgradcheck(
      [](const variable_list& in) -> variable_list { return {in[0] * in[1].exp()}; }, {x, y}));
}

TEST_CASE("gradcheck names the output, the input, the element and both numbers") {
  CHECK(error_text([] { gradcheck(wrong_square, {leaf({1.0, 2.0})}); }) ==
        "gradcheck: the gradient of output 0 with respect to input 0 is wrong in 2 of 4 elements.\n"
        "For output[1] and input[1]: backward gives 2, finite differences give 4.");
  CHECK_FALSE(gradcheck(wrong_square, {leaf({1.0, 2.0})}, {.raise_exception = false}));
}

TEST_CASE("gradgradcheck finds a wrong second gradient behind a right first one") {
  // The gradient 2x is right but says that it is constant.
  auto fn = [](const variable_list& in) -> variable_list {
    const Tensor x = in[0];
    return {x * x.detach() * 2 - (x * x).detach()};
  };
  CHECK(gradcheck(fn, {leaf({1.5})}, {.raise_exception = false}));
  CHECK_FALSE(gradgradcheck(fn, {leaf({1.5})}, {}, {.raise_exception = false}));
}

TEST_CASE("an output that does not follow an input has gradient zero") {
  const Tensor x = leaf({1.0}), y = leaf({2.0});
  CHECK(gradcheck([](const variable_list& in) -> variable_list { return {in[0] * 2, in[1] * 3}; },
                  {x, y}));
  CHECK(gradcheck([](const variable_list& in) -> variable_list { return {in[0].detach().floor()}; },
                  {leaf({1.5})}));
}

TEST_CASE("gradcheck puts its inputs back, also when the function throws") {
  const Tensor x = leaf({1.25});
  int calls = 0;
  auto throws_later = [&](const variable_list& in) -> variable_list {
    if (++calls == 3) throw Error("enough");
    return {in[0] * 2};
  };
  CHECK(error_text([&] { gradcheck(throws_later, {x}); }) == "enough");
  CHECK(x.item<double>() == 1.25);
  CHECK(x._version() == 0);
}

TEST_CASE("gradcheck works with recording switched off around it") {
  const NoGradGuard guard;
  CHECK(gradcheck([](const variable_list& in) -> variable_list { return {in[0].exp()}; },
                  {leaf({0.5})}));
}

TEST_CASE("gradcheck refuses inputs it cannot move") {
  auto identity = [](const variable_list& in) { return in; };
  CHECK(error_text([&] { gradcheck(identity, {tensor({1.0}, kFloat64)}); }) ==
        "gradcheck: none of the 1 inputs requires grad.\nMark those to check: "
        "x.set_requires_grad(true).");
  CHECK(error_text([&] { gradcheck(identity, {tensor({1.0}, requires_grad())}); }) ==
        "gradcheck: input 0 is f32.\nFinite differences need f64: x.to(kFloat64).");
  CHECK(error_text([&] {
          gradcheck(identity, {leaf({1.0}).expand({3})});
        }).starts_with("gradcheck: elements of input 0 share memory"));
}
