/// Anomaly mode inside recordings: NaNs are found when the graph runs, without breaking it.
#include <cmath>
#include <limits>

#include "tests/compile/modes.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor parameter(double v) {
  Tensor t = tensor({v, v}, dtype(kFloat32).requires_grad(true));
  t.set_name("fc1.weight");
  return t;
}

void check_contains(const std::string& text, std::initializer_list<const char*> parts) {
  CAPTURE(text);
  for (const char* part : parts) CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("compiled.85 anomaly mode names the parameter whose grad already holds NaN") {
  in_all_modes({}, [](Mode& mode) {
    const DetectAnomalyGuard anomaly;
    Tensor x = parameter(1);
    x.set_grad(tensor({1.0, kNan}, dtype(kFloat32)));
    Tensor loss = mode.call([&] { return (x * 2).sum(); });
    check_contains(error_text([&] { mode.backward([&] { loss.backward(); }); }),
                   {"'fc1.weight'", "already holds NaN", "reset_grad()"});
  });
}

TEST_CASE("compiled.85 anomaly mode names the node that made a NaN and the parameter it is for") {
  in_all_modes({}, [](Mode& mode) {
    const DetectAnomalyGuard anomaly;
    Tensor x = parameter(0);
    Tensor loss = mode.call([&] { return (log(x) * 0.0).sum(); });  // 0 / 0
    check_contains(error_text([&] { mode.backward([&] { loss.backward(); }); }),
                   {"the backward of log returned NaN in output 0",
                    "the gradient of the parameter 'fc1.weight'", "anomaly_test.cpp"});
  });
}

TEST_CASE("compiled.85 anomaly mode names the result of grad() that holds NaN") {
  in_all_modes({.F = 2, .B = 2}, [](Mode& mode) {
    const DetectAnomalyGuard anomaly;
    Tensor x = parameter(0), other = parameter(2);
    Tensor loss = mode.call([&] { return (log(x) * 0.0 + other).sum(); });
    check_contains(
        error_text([&] { mode.backward([&] { autograd::grad({loss}, {other, x}, {}, true); }); }),
        {"the backward of log returned NaN in output 0", "result 1 of grad()"});
    // A NaN that no node made.
    Tensor y = mode.call([&] { return other * 2; });
    check_contains(
        error_text([&] { mode.backward([&] { autograd::grad({y}, {y}, {full({2}, kNan)}); }); }),
        {"result 0 of grad()", "holds NaN"});
  });
}

TEST_CASE(
    "anomaly mode is part of what was recorded, breaks no graph and calls hooks in the same "
    "order") {
  in_all_modes({.F = 1, .B = 1}, [](Mode& mode) {
    const DetectAnomalyGuard anomaly;
    Tensor x = parameter(3);
    std::vector<int> order;
    x.register_hook([&](const Tensor& g) {
      order.push_back(1);
      return g * 2;
    });
    x.register_post_accumulate_grad_hook([&](Tensor) { order.push_back(2); });
    Tensor loss = mode.call([&] { return (x * x).sum(); });
    mode.backward([&] { loss.backward(); });
    CHECK(values_of(x.grad()) == std::vector<double>{12, 12});
    CHECK(order == std::vector<int>{1, 2});
    CHECK(mode.breaks == 0);
  });
}

TEST_CASE("anomaly mode names the hook that made a NaN") {
  in_all_modes({}, [](Mode& mode) {
    const DetectAnomalyGuard anomaly;
    Tensor x = parameter(3);
    x.register_hook([](const Tensor& g) { return g * kNan; }, {"spoil"});
    Tensor loss = mode.call([&] { return (x * x).sum(); });
    check_contains(error_text([&] { mode.backward([&] { loss.backward(); }); }),
                   {"tensor hook 'spoil'", "anomaly_test.cpp"});
  });
}
