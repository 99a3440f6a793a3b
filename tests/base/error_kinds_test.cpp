/// Kinds of errors: each is an Error, with the message and the place of one.
#include <grapnel/grapnel.h>

#include "tests/autograd/vectors.h"

using namespace grapnel;

TEST_CASE("a position that is not there is an IndexError, also when a graph or a hook finds it") {
  CHECK_THROWS_AS(ones({3}).select(0, 5), IndexError);
  CHECK_THROWS_AS(ones({3}).sum({2}), IndexError);
  CHECK_THROWS_AS(ones({3}).narrow(0, 9, 1), IndexError);
  CHECK_THROWS_AS(ones({3}).index_select(0, tensor({int64_t{7}})), IndexError);
  auto f = compile([](const Tensor& x, const Tensor& i) { return x.index_select(0, i); });
  CHECK_THROWS_AS(f(ones({3}), tensor({int64_t{7}})), IndexError);
  const Tensor x = ones({2}, requires_grad());
  x.register_hook([](const Tensor& g) { return g.select(0, 9); });
  CHECK_THROWS_AS((x * 2).sum().backward(), IndexError);
}

TEST_CASE("elements of a type that an op is not defined for are a TypeError") {
  CHECK_THROWS_AS(matmul(ones({2, 2}), ones({2, 2}, kInt64)), TypeError);
  CHECK_THROWS_AS(ones({3}, kInt64).softmax(0), TypeError);
  CHECK_THROWS_AS(ones({3}, kInt64).mean(), TypeError);
  CHECK_THROWS_AS(ones({3}, kInt64).set_requires_grad(true), TypeError);
}

TEST_CASE("a setting that makes no sense is a ValueError") {
  const Tensor w = ones({1}, requires_grad());
  CHECK_THROWS_AS(optim::SGD({w}, -1.0), ValueError);
  optim::SGD optimizer({w}, 0.1);
  CHECK_THROWS_AS(optim::StepLR(optimizer, 0), ValueError);
}

TEST_CASE("reading a value where a graph may not break is a GraphBreak") {
  auto f = compile([](const Tensor& x) { return (x * 2).item<double>(); }, {.fullgraph = true});
  CHECK_THROWS_AS(f(ones({1})), GraphBreak);
  CHECK_THROWS_AS(trace([](Tensor x) { return ones({(x * 2).item<int64_t>()}); }, {ones({1})}),
                  GraphBreak);
  auto pure = compile([](const Tensor& x) { return (x * 2).item<double>(); }, {.replay = true});
  CHECK_THROWS_AS(pure(ones({1})), GraphBreak);
}

TEST_CASE("all kinds are Errors, and end with the line that called") {
  try {
    ones({3}).select(0, 5);
    FAIL("no error");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("select: index 5 is out of range") == 0);
    CHECK(text.find("error_kinds_test.cpp:") != std::string::npos);
    CHECK(dynamic_cast<const IndexError*>(&error) != nullptr);
  }
}
