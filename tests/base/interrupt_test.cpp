#include "grapnel/base/interrupt.h"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "grapnel/grapnel.h"

namespace grapnel {

namespace {

int asked = 0;
bool interrupted = false;
struct Interrupted : std::exception {};

struct Check {
  Check() {
    asked = 0;
    interrupted = false;
    set_interrupt_check([] {
      ++asked;
      if (interrupted) throw Interrupted();
    });
  }
  ~Check() { set_interrupt_check(nullptr); }
};

/// Nobody may be asked again before that much has passed.
void wait_for_next() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

}  // namespace

TEST_CASE("a pass asks between nodes whether it is to go on, at most every 20 ms") {
  const Check check;
  wait_for_next();
  Tensor x = ones({2}, requires_grad());
  Tensor y = x;
  for (int i = 0; i < 200; ++i) y = y * 1.5;
  y.sum().backward();
  CHECK(asked >= 1);
  CHECK(asked <= 50);  // not once for each of the nodes, however busy the machine
}

TEST_CASE("an interrupt ends a pass with the exception of the check") {
  const Check check;
  Tensor x = ones({2}, requires_grad());
  Tensor y = x;
  int visited = 0;
  for (int i = 0; i < 10; ++i) {
    y = y * 1.5;
    y.register_hook([&](const Tensor&) {
      if (++visited == 3) {
        interrupted = true;
        wait_for_next();
      }
    });
  }
  CHECK_THROWS_AS(y.sum().backward(), Interrupted);
  CHECK(visited == 3);
  CHECK(!x.grad().defined());
  interrupted = false;
  Tensor z = x * 2;
  z.sum().backward();
  CHECK(x.grad()[0].item<double>() == 2);
}

TEST_CASE("an interrupt ends a compiled run between its items") {
  for (const Backend backend : {Backend::eager, Backend::aot_eager, Backend::fused}) {
    CAPTURE(name(backend));
    const Check check;
    const Tensor a = ones({8, 8});
    int ran = 0;
    auto f = compile(
        [&] {
          Tensor x = a;
          for (int i = 0; i < 5; ++i) {
            x = invoke(opaque([&](const Tensor& t) {
                         if (++ran == 2) {
                           interrupted = true;
                           wait_for_next();
                         }
                         return t * 1;
                       }),
                       x);
          }
          return x;
        },
        {.backend = backend});
    CHECK_THROWS_AS(f(), Interrupted);
    CHECK(ran == 2);
    interrupted = false;
    CHECK(f()[0][0].item<double>() == 1);
    CHECK(ran == 7);
  }
}

}  // namespace grapnel
