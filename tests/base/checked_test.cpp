#include "grapnel/base/checked.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

using namespace grapnel;

namespace {
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
}  // namespace

TEST_CASE("checked arithmetic gives the result where it fits") {
  CHECK(checked_add<int64_t>(kMax - 1, 1, "x") == kMax);
  CHECK(checked_sub<int64_t>(kMin + 1, 1, "x") == kMin);
  CHECK(checked_mul<int64_t>(kMax / 2, 2, "x") == kMax - 1);
  CHECK(checked_add<uint64_t>(~uint64_t{0} - 1, 1, "x") == ~uint64_t{0});
  CHECK(checked_mul<size_t>(1 << 20, 1 << 20, "x") == size_t{1} << 40);
}

TEST_CASE("what does not fit is an error with both numbers") {
  CHECK_THROWS_WITH_AS(checked_add<int64_t>(kMax, 1, "slice"),
                       "slice: 9223372036854775807 + 1 does not fit in 64 bits.", Error);
  CHECK_THROWS_WITH_AS(checked_sub<int32_t>(-2'000'000'000, 2'000'000'000, "x"),
                       "x: -2000000000 - 2000000000 does not fit in 32 bits.", Error);
  CHECK_THROWS_WITH_AS(checked_mul<int64_t>(kMin, -1, "x"),
                       "x: -9223372036854775808 * -1 does not fit in 64 bits.", Error);
  CHECK_THROWS_AS(checked_sub<uint64_t>(0, 1, "x"), Error);
  CHECK_THROWS_AS(checked_mul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32, "x"), Error);
}

TEST_CASE("a number is cut for a smaller type only if nothing is lost") {
  CHECK(checked_cast<uint16_t>(65535, "cat") == 65535);
  CHECK_THROWS_WITH_AS(checked_cast<uint16_t>(65536, "cat"),
                       "cat: 65536 is out of range; it must be from 0 to 65535.", Error);
  CHECK(checked_cast<int32_t>(int64_t{-2147483648}, "x") == -2147483648);
  CHECK_THROWS_AS(checked_cast<int32_t>(int64_t{1} << 31, "x"), Error);
  CHECK_THROWS_AS(checked_cast<uint64_t>(-1, "x"), Error);
  CHECK_THROWS_AS(checked_cast<int64_t>(~uint64_t{0}, "x"), Error);
}

TEST_CASE("ceil_div rounds up for every divisor") {
  CHECK(ceil_div(0, 3) == 0);
  CHECK(ceil_div(1, 3) == 1);
  CHECK(ceil_div(3, 3) == 1);
  CHECK(ceil_div(4, 3) == 2);
  CHECK(ceil_div(5, kMax) == 1);
  CHECK(ceil_div(kMax, kMax) == 1);
  CHECK(ceil_div(kMax, 1) == kMax);
}
