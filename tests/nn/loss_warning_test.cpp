/// Losses of two shapes warn, and the line they name is the user's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "grapnel/grapnel.h"

namespace grapnel {

namespace {

struct Warnings {
  std::vector<std::string> seen;
  Warnings() {
    set_warning_handler([this](const std::string& text) { seen.push_back(text); });
  }
  ~Warnings() { set_warning_handler(nullptr); }
  bool has(size_t number, int line) const {
    return seen[number].find(str("loss_warning_test.cpp:", line, " (")) != std::string::npos;
  }
};

template <class Loss>
void check_lines(Loss loss) {
  const Tensor x = ones({3, 1}), target = ones({3});
  Warnings warnings;
  const int first = __LINE__ + 2, second = __LINE__ + 3, third = __LINE__ + 4;
  for (int i = 0; i < 3; ++i) {
    CHECK(loss(x, target).defined());
    CHECK(loss(x, target).defined());
    CHECK(loss->forward(x, target).defined());
  }
  REQUIRE(warnings.seen.size() == 3);
  CHECK(warnings.has(0, first));
  CHECK(warnings.has(1, second));
  CHECK(warnings.has(2, third));
}

}  // namespace

TEST_CASE("a loss module of two shapes warns once for each line that calls it") {
  check_lines(nn::MSELoss());
  check_lines(nn::L1Loss());
  check_lines(nn::SmoothL1Loss());
  check_lines(nn::HuberLoss());
}

}  // namespace grapnel
