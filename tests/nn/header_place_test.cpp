/// Errors that are thrown by code in headers, inlined into the user's function or not, name the
/// user's line.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "grapnel/grapnel.h"
#include "tests/ops/error_text.h"

namespace grapnel {

namespace {

struct UserCall {
  int line;
  std::function<void()> run;
};
// Something is left to do behind the call, or it would become a jump.
#define CALL(...)          \
  UserCall {               \
    __LINE__, [=] {        \
      (void)(__VA_ARGS__); \
      asm volatile("");    \
    }                      \
  }

std::vector<UserCall> bad_calls() {
  const Tensor undefined, two = ones({2, 3});
  const nn::Linear empty{nullptr};
  const OrderedDict<std::string, int> none("settings");
  nn::Sequential one(nn::ReLU{});
  return {
      CALL(undefined.dim()),
      CALL(undefined.sizes()),
      CALL(undefined.size(0)),
      CALL(undefined.numel()),
      CALL(undefined.dtype()),
      CALL(undefined.requires_grad()),
      CALL(two.size(7)),
      CALL(empty->weight),
      CALL(two.accessor<float, 1>()),
      CALL(two.accessor<double, 2>()),
      CALL(two.data_ptr<double>()),
      CALL(two.item<float>()),
      CALL(none.front()),
      CALL(none["rate"]),
      CALL(one->ptr(3)),
  };
}

/// A generic lambda that fails, seen from a function of the user's.
[[gnu::noinline]] std::string generic_lambda_fails() {
  const auto generic = [](auto& first, const auto&... rest) { (void)(first + (rest + ...)); };
  Tensor a = ones({2}), b = ones({3}), c = ones({1});
  return full_error_text([&] { generic(a, b, c); });
}

}  // namespace

TEST_CASE("an error in a header of the library names the user's line") {
  for (const UserCall& call : bad_calls()) {
    const std::string text = full_error_text(call.run);
    CAPTURE(call.line);
    CAPTURE(text);
    CHECK(text.find(str("header_place_test.cpp:", call.line, " (lambda")) != std::string::npos);
  }
}

TEST_CASE("a generic lambda is called a lambda") {
  const std::string text = generic_lambda_fails();
  CAPTURE(text);
  CHECK(text.find("header_place_test.cpp") != std::string::npos);
  CHECK(text.find(" (lambda") != std::string::npos);
  CHECK(text.find("operator()<") == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '(') == std::count(text.begin(), text.end(), ')'));
}

}  // namespace grapnel
