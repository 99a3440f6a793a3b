/// A short run of the fuzzer's programs that is the same every time.
#include <doctest/doctest.h>

#include <random>

#include "tests/fuzz/random_program.h"

namespace grapnel::fuzz {

namespace {
std::vector<uint8_t> random_bytes(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(50 + random() % 500);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}
}  // namespace

TEST_CASE(
    "random programs end in results or errors, the same every time, and leave nothing behind") {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    CHECK_NOTHROW(check_program(random_bytes(seed)));
  }
}

}  // namespace grapnel::fuzz
