#include "grapnel/base/half.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using grapnel::BFloat16;
using grapnel::Half;

namespace {

template <class F>
struct Format;
template <>
struct Format<Half> {
  static constexpr int mantissa = 10, bias = 15;
};
template <>
struct Format<BFloat16> {
  static constexpr int mantissa = 7, bias = 127;
};

bool is_nan_pattern(uint32_t bits, uint32_t infinity) { return (bits & 0x7fff) > infinity; }

// The definition, in plain arithmetic: sign * m * 2^e.
template <class F>
double meaning(uint16_t bits) {
  constexpr int mantissa = Format<F>::mantissa, bias = Format<F>::bias;
  const int exponent = (bits & 0x7fff) >> mantissa;
  const int fraction = bits & ((1 << mantissa) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 2 * bias + 1)
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
}

// For every finite number: it, its upper neighbour and what lies between must round as "nearest,
// ties to even" says.
template <class F, class Wide>
void check_rounding_between_all_neighbours() {
  const uint16_t infinity = std::numeric_limits<F>::infinity().bits;
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const auto here = static_cast<uint16_t>(bits), next = static_cast<uint16_t>(bits + 1);
    const auto low = static_cast<Wide>(meaning<F>(here));
    // Above the largest number lies what would be the next one if the exponents went on.
    const double high = next == infinity ? std::ldexp(1.0, Format<F>::bias + 1) : meaning<F>(next);
    const auto middle = static_cast<Wide>((static_cast<double>(low) + high) / 2);
    const Wide inf = std::numeric_limits<Wide>::infinity();
    const uint16_t even = bits % 2 == 0 ? here : next;
    REQUIRE(F(low).bits == here);
    REQUIRE(F(std::nextafter(low, inf)).bits == here);
    REQUIRE(F(std::nextafter(middle, -inf)).bits == here);
    REQUIRE(F(middle).bits == even);
    REQUIRE(F(std::nextafter(middle, inf)).bits == next);
    REQUIRE(F(-middle).bits == (even | 0x8000));
    REQUIRE(F(std::nextafter(-middle, -inf)).bits == (next | 0x8000));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("all 65536 patterns of a 16-bit float mean what the format says", F, Half,
                   BFloat16) {
  const uint16_t infinity = std::numeric_limits<F>::infinity().bits;
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const F value = F::from_bits(bits);
    if (is_nan_pattern(bits, infinity)) {
      REQUIRE(std::isnan(float(value)));
      REQUIRE(is_nan_pattern(F(float(value)).bits, infinity));
      REQUIRE(is_nan_pattern(F(double(value)).bits, infinity));
      REQUIRE((F(float(value)).bits & 0x8000) == (bits & 0x8000));
    } else {
      REQUIRE(double(float(value)) == meaning<F>(bits));
      REQUIRE(std::signbit(float(value)) == (bits >= 0x8000));
      REQUIRE(F(float(value)).bits == bits);
      REQUIRE(F(double(value)).bits == bits);
    }
  }
}

TEST_CASE_TEMPLATE("floats and doubles round to the nearest 16-bit float, ties to even", F, Half,
                   BFloat16) {
  check_rounding_between_all_neighbours<F, float>();
  check_rounding_between_all_neighbours<F, double>();
}

TEST_CASE_TEMPLATE("what is too large becomes infinite and what is too small becomes zero", F, Half,
                   BFloat16) {
  using Limits = std::numeric_limits<F>;
  for (const double large : {1e39, 1e300, std::numeric_limits<double>::infinity()}) {
    CHECK(F(large).bits == Limits::infinity().bits);
    CHECK(F(-large).bits == (-Limits::infinity()).bits);
  }
  CHECK(Half(3e38f).bits == std::numeric_limits<Half>::infinity().bits);
  for (const double small : {0.0, 1e-300, 5e-324, 1e-41}) {
    CHECK(F(small).bits == 0);
    CHECK(F(-small).bits == 0x8000);
  }
  CHECK(F(std::numeric_limits<double>::quiet_NaN()).bits == Limits::quiet_NaN().bits);
  CHECK(F(std::numeric_limits<float>::quiet_NaN()).bits == Limits::quiet_NaN().bits);
  CHECK(std::isnan(float(F(std::numeric_limits<double>::signaling_NaN()))));
  CHECK(std::isnan(float(F(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("a double rounds once, not first to float") {
  // Just above the middle of 1 and its neighbour; float would drop the excess and the tie would go
  // down to 1.
  CHECK(Half(1.0 + 0x1p-11 + 0x1p-40).bits == 0x3c01);
  CHECK(Half(float(1.0 + 0x1p-11 + 0x1p-40)).bits == 0x3c00);
  CHECK(BFloat16(1.0 + 0x1p-8 + 0x1p-40).bits == 0x3f81);
  CHECK(BFloat16(float(1.0 + 0x1p-8 + 0x1p-40)).bits == 0x3f80);
}

TEST_CASE("an integer rounds once, however long it is") {
  CHECK(float(Half(2049)) == 2048.0f);
  CHECK(float(Half(2051)) == 2052.0f);
  CHECK(Half(65520).bits == std::numeric_limits<Half>::infinity().bits);
  CHECK(float(Half(true)) == 1.0f);
  const int64_t middle = (int64_t{1} << 62) + (int64_t{1} << 54);
  CHECK(float(BFloat16(middle)) == 0x1p62f);
  CHECK(float(BFloat16(middle + 1)) == 0x1p62f + 0x1p55f);
  CHECK(float(BFloat16(-middle)) == -0x1p62f);
  CHECK(float(BFloat16(-middle - 1)) == -0x1p62f - 0x1p55f);
  CHECK(float(BFloat16(-middle + 1)) == -0x1p62f);
  CHECK(float(BFloat16(std::numeric_limits<int64_t>::min())) == -0x1p63f);
  CHECK(float(BFloat16(std::numeric_limits<uint64_t>::max())) == 0x1p64f);
  CHECK(float(BFloat16(int64_t{1} << 53)) == 0x1p53f);
}

TEST_CASE_TEMPLATE("arithmetic happens in float and rounds back", F, Half, BFloat16) {
  const F a = 1.5f, b = 2;
  CHECK(a + b == 3.5f);
  CHECK(a - b == -0.5);
  CHECK(a * b == 3);
  CHECK(b / a == float(F(2.0f / 1.5f)));
  CHECK(-a == -1.5f);
  CHECK(a < b);
  CHECK(a != b);
  CHECK(F(0.0f) == F(-0.0f));
  CHECK_FALSE(std::numeric_limits<F>::quiet_NaN() == std::numeric_limits<F>::quiet_NaN());
  static_assert(std::is_same_v<decltype(a + b), F>);
  static_assert(std::is_same_v<decltype(a + 1.0f), float>);
  static_assert(std::is_same_v<decltype(1.0 * a), double>);
  static_assert(std::is_same_v<decltype(a * 2), F>);
  F sum = 0;
  sum += a;
  sum *= 4;
  sum -= 1.0f;
  sum /= b;
  CHECK(sum == 2.5f);
  static_assert(F(1.0) + F(2.0) == 3.0f);
}

TEST_CASE("numeric_limits of the 16-bit floats") {
  using H = std::numeric_limits<Half>;
  using B = std::numeric_limits<BFloat16>;
  static_assert(H::is_specialized && B::is_specialized && H::has_infinity && !H::is_integer);
  CHECK(H::max() == 65504.0f);
  CHECK(H::lowest() == -65504.0f);
  CHECK(H::min() == 0x1p-14f);
  CHECK(H::denorm_min() == 0x1p-24f);
  CHECK(H::epsilon() == 0x1p-10f);
  CHECK(B::max() == 0x1.fep127f);
  CHECK(B::min() == 0x1p-126f);
  CHECK(B::denorm_min() == 0x1p-133f);
  CHECK(B::epsilon() == 0x1p-7f);
  CHECK(std::isnan(float(H::quiet_NaN())));
  CHECK(std::isnan(float(B::signaling_NaN())));
  CHECK(H::digits == 11);
  CHECK(H::digits10 == 3);
  CHECK(H::max_digits10 == 5);
  CHECK(H::min_exponent == -13);
  CHECK(H::max_exponent == 16);
  CHECK(H::min_exponent10 == -4);
  CHECK(H::max_exponent10 == 4);
  CHECK(B::digits == 8);
  CHECK(B::digits10 == 2);
  CHECK(B::max_digits10 == 4);
  CHECK(B::min_exponent == -125);
  CHECK(B::max_exponent == 128);
  CHECK(B::min_exponent10 == -37);
  CHECK(B::max_exponent10 == 38);
}

TEST_CASE("loops over blocks give the bits of single conversions") {
  std::mt19937 random(1);
  std::vector<float> in(10007), back(in.size());
  for (float& x : in) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
  std::vector<Half> half(in.size());
  std::vector<BFloat16> bfloat(in.size());
  for (size_t i = 0; i < in.size(); ++i) half[i] = in[i];
  for (size_t i = 0; i < in.size(); ++i) bfloat[i] = in[i];
  for (size_t i = 0; i < in.size(); ++i) back[i] = half[i];
  for (size_t i = 0; i < in.size(); ++i) {
    volatile float one = in[i];
    REQUIRE(half[i].bits == Half(float(one)).bits);
    REQUIRE(bfloat[i].bits == BFloat16(float(one)).bits);
    REQUIRE(std::bit_cast<uint32_t>(back[i]) == std::bit_cast<uint32_t>(float(Half(float(one)))));
  }
}

#if defined(__x86_64__)
namespace {

// Numbers of disagreements with the processor: over all halves, and over floats evenly spread among
// all patterns.
__attribute__((target("avx,f16c"))) int widening_mismatches() {
  int count = 0;
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    count += std::bit_cast<uint32_t>(float(Half::from_bits(bits))) !=
             std::bit_cast<uint32_t>(_cvtsh_ss(bits));
  }
  return count;
}
__attribute__((target("avx,f16c"))) int narrowing_mismatches() {
  int count = 0;
  for (uint64_t i = 0; i <= 0xffffffff; i += 97) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(i));
    count += Half(x).bits != _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
  }
  return count;
}

// A checksum of conversions in all directions.
[[gnu::noinline]] uint64_t checksum() {
  uint64_t sum = 0;
  auto mix = [&](uint64_t bits) { sum = (sum ^ bits) * 0x9E3779B97F4A7C15; };
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    mix(std::bit_cast<uint32_t>(float(Half::from_bits(bits))));
    mix(std::bit_cast<uint32_t>(float(BFloat16::from_bits(bits))));
  }
  for (uint64_t i = 0; i < 100000; ++i) {
    const auto narrow = std::bit_cast<float>(static_cast<uint32_t>(i * 42949));
    const auto wide = std::bit_cast<double>(i * 184467440737095);
    mix(Half(narrow).bits);
    mix(BFloat16(narrow).bits);
    mix(Half(wide).bits);
    mix(BFloat16(wide).bits);
  }
  return sum;
}

}  // namespace

TEST_CASE("conversions do not depend on the flush-to-zero mode") {
  const uint64_t expected = checksum();
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040);  // flush to zero, and take subnormal operands for zero
  const uint64_t flushed = checksum();
  _mm_setcsr(mode);
  CHECK(flushed == expected);
}

TEST_CASE("half conversions give the bits of the F16C instructions, NaNs included") {
  if (__builtin_cpu_supports("f16c")) {
    CHECK(widening_mismatches() == 0);
    CHECK(narrowing_mismatches() == 0);
  }
}
#endif
