#include "grapnel/base/interrupt.h"

#include <cstdint>
#include <ctime>

namespace grapnel {

namespace {
/// Of the coarse clock, which takes a few nanoseconds to read and is right to some milliseconds.
constexpr int64_t kBetween = 20'000'000;
constinit thread_local int64_t last_asked = INT64_MIN / 2;

int64_t coarse_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
}  // namespace

namespace base {

constinit std::atomic<void (*)()> interrupt_check{nullptr};

void ask_for_interrupts() {
  const int64_t now = coarse_now();
  if (now - last_asked < kBetween) return;
  last_asked = now;
  if (const auto check = interrupt_check.load(std::memory_order_acquire)) check();
}

}  // namespace base

void set_interrupt_check(void (*check)()) {
  base::interrupt_check.store(check, std::memory_order_release);
}

}  // namespace grapnel
