/// The 16-bit floating-point types Half (5 bits of exponent, 10 of mantissa) and BFloat16 (8 and
/// 7).
///
/// They are for storage; arithmetic happens in float and rounds back. Every conversion rounds once,
/// to nearest with ties to even, whatever type it starts from: a double does not pass through float
/// on its way. Values beyond the largest become infinite, small ones subnormal, and a NaN stays a
/// (quiet) NaN.
///
/// Note [Conversions without branches]: conversions are integer arithmetic and selects, plus
/// additions in which a subnormal number cannot make a difference. So compilers turn loops over
/// them into SIMD code, and the bits depend neither on the instruction set (vcvtneps2bf16, for one,
/// drops subnormals) nor on a flush-to-zero mode that somebody else has set. Everything is forced
/// inline, so that kernels for several instruction sets do not share a copy.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace grapnel {
namespace base {

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

// Facts about a 16-bit format, as seen from a wider one with `Bits` as its pattern.
template <class Wide>
struct WideFormat;
template <>
struct WideFormat<float> {
  using Bits = uint32_t;
  static constexpr int mantissa = 23, bias = 127;
};
template <>
struct WideFormat<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52, bias = 1023;
};

/// The pattern of the number nearest to `value` with `mantissa` bits of mantissa and this exponent
/// bias.
template <int mantissa, int bias, std::floating_point Wide>
[[gnu::always_inline]] constexpr uint16_t round_to_16_bits(Wide value) {
  using Format = WideFormat<Wide>;
  using Bits = typename Format::Bits;
  constexpr int dropped = Format::mantissa - mantissa;
  constexpr Bits wide_infinity = Bits(2 * Format::bias + 1) << Format::mantissa;
  constexpr Bits infinity = Bits(2 * bias + 1) << mantissa;
  constexpr Bits quiet = Bits(1) << (mantissa - 1);

  const Bits pattern = std::bit_cast<Bits>(value);
  const Bits sign = (pattern >> (sizeof(Bits) * 8 - 16)) & 0x8000;
  const Bits size = pattern & (~Bits(0) >> 1);

  // Adding just under half of the last kept bit, and that bit itself, carries exactly when
  // nearest-even goes up.
  const Bits odd = (size >> dropped) & 1;
  constexpr Bits rebias = Bits(Format::bias - bias) << Format::mantissa;
  Bits result = (size + ((Bits(1) << (dropped - 1)) - 1 + odd) - rebias) >> dropped;

  if constexpr (Format::bias != bias) {
    // Below the smallest normal number the addition itself does the rounding: the last mantissa bit
    // of `magic` is worth one unit of our subnormals.
    constexpr Bits smallest_normal = Bits(Format::bias - bias + 1) << Format::mantissa;
    constexpr Bits magic = Bits(Format::bias + Format::mantissa + 1 - bias - mantissa)
                           << Format::mantissa;
    const Bits subnormal =
        std::bit_cast<Bits>(std::bit_cast<Wide>(size) + std::bit_cast<Wide>(magic)) - magic;
    result = size < smallest_normal ? subnormal : result;
    constexpr Bits too_large = Bits(Format::bias + bias + 1) << Format::mantissa;
    result = size >= too_large ? infinity : result;
  }
  const Bits nan = infinity | quiet | ((size >> dropped) & (quiet - 1));
  result = size > wide_infinity ? nan : result;
  return static_cast<uint16_t>(sign | result);
}

/// A double that rounds to any 16-bit format like `value` itself does.
template <std::integral Int>
[[gnu::always_inline]] constexpr double as_double_for_rounding(Int value) {
  if constexpr (sizeof(Int) == 8) {
    // Too long for a double: keep 53 bits, the last of which says whether anything was cut off.
    constexpr Int low = 0x7ff;
    const Int cut = static_cast<Int>((value & ~low) | ((value & low) != 0 ? low + 1 : 0));
    const double magnitude = static_cast<double>(cut);
    return magnitude > 0x1p53 || magnitude < -0x1p53 ? magnitude : static_cast<double>(value);
  } else {
    return static_cast<double>(value);
  }
}

[[gnu::always_inline]] constexpr float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t size = bits & 0x7fff;
  const uint32_t shifted = size << 13;
  // Masks, since GCC threads nested selects into jumps and then cannot vectorise.
  const uint32_t is_special = -uint32_t(size >= 0x7c00);
  const uint32_t is_nan = -uint32_t(size > 0x7c00);
  const uint32_t is_subnormal = -uint32_t(size < 0x0400);
  const uint32_t normal = shifted + (112u << 23) + (is_special & (112u << 23));
  // 2^-14 * (1 + m / 1024) - 2^-14 is exact.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + (113u << 23)) - 0x1p-14f);
  const uint32_t result =
      (normal & ~is_subnormal) | (subnormal & is_subnormal) | (is_nan & (1u << 22));
  return std::bit_cast<float>(sign | result);
}

}  // namespace base

struct Half {
  uint16_t bits;

  Half() = default;
  template <base::Arithmetic T>
  [[gnu::always_inline]] constexpr Half(T value) : bits(pattern_of(value)) {}
  [[gnu::always_inline]] static constexpr Half from_bits(uint16_t pattern) {
    return std::bit_cast<Half>(pattern);
  }
  [[gnu::always_inline]] constexpr operator float() const { return base::half_to_float(bits); }

 private:
  template <class T>
  [[gnu::always_inline]] static constexpr uint16_t pattern_of(T value) {
    if constexpr (std::integral<T>) {
      return pattern_of(base::as_double_for_rounding(value));
    } else {
      return base::round_to_16_bits<10, 15>(value);
    }
  }
};

struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  template <base::Arithmetic T>
  [[gnu::always_inline]] constexpr BFloat16(T value) : bits(pattern_of(value)) {}
  [[gnu::always_inline]] static constexpr BFloat16 from_bits(uint16_t pattern) {
    return std::bit_cast<BFloat16>(pattern);
  }
  [[gnu::always_inline]] constexpr operator float() const {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }

 private:
  template <class T>
  [[gnu::always_inline]] static constexpr uint16_t pattern_of(T value) {
    if constexpr (std::integral<T>) {
      return pattern_of(base::as_double_for_rounding(value));
    } else {
      return base::round_to_16_bits<7, 127>(value);
    }
  }
};

static_assert(sizeof(Half) == 2 && std::is_trivial_v<Half>);
static_assert(sizeof(BFloat16) == 2 && std::is_trivial_v<BFloat16>);

template <class T>
concept SixteenBitFloat = std::same_as<T, Half> || std::same_as<T, BFloat16>;

/// Two of a kind give their kind, rounded once. With a float or a double the wider type wins, with
/// an integer the 16-bit float does. Comparisons are float's: both types convert to it.
#define GRAPNEL_16_BIT_OPERATOR(op)                                                      \
  template <SixteenBitFloat F>                                                           \
  [[gnu::always_inline]] constexpr F operator op(F a, F b) {                             \
    return F(float(a) op float(b));                                                      \
  }                                                                                      \
  template <SixteenBitFloat F, base::Arithmetic T>                                       \
  [[gnu::always_inline]] constexpr auto operator op(F a, T b) {                          \
    if constexpr (std::integral<T>) return a op F(b);                                    \
    else return static_cast<T>(float(a)) op b;                                           \
  }                                                                                      \
  template <SixteenBitFloat F, base::Arithmetic T>                                       \
  [[gnu::always_inline]] constexpr auto operator op(T a, F b) {                          \
    if constexpr (std::integral<T>) return F(a) op b;                                    \
    else return a op static_cast<T>(float(b));                                           \
  }                                                                                      \
  template <SixteenBitFloat F>                                                           \
  [[gnu::always_inline]] constexpr F& operator op##=(F & a, std::type_identity_t<F> b) { \
    return a = a op b;                                                                   \
  }
GRAPNEL_16_BIT_OPERATOR(+)
GRAPNEL_16_BIT_OPERATOR(-)
GRAPNEL_16_BIT_OPERATOR(*)
GRAPNEL_16_BIT_OPERATOR(/)
#undef GRAPNEL_16_BIT_OPERATOR

template <SixteenBitFloat F>
[[gnu::always_inline]] constexpr F operator-(F a) {
  return F::from_bits(static_cast<uint16_t>(a.bits ^ 0x8000));
}

namespace base {

// What is the same in both formats' numeric_limits follows from the mantissa's width and the
// exponent's bias.
template <class F, int mantissa, int bias>
struct SixteenBitLimits : std::numeric_limits<float> {
  static constexpr int digits = mantissa + 1;
  static constexpr int digits10 = mantissa * 301 / 1000;
  static constexpr int max_digits10 = digits * 301 / 1000 + 2;
  static constexpr int min_exponent = 2 - bias;
  static constexpr int max_exponent = bias + 1;
  static constexpr int min_exponent10 = -((bias - 1) * 301 / 1000);
  static constexpr int max_exponent10 = max_exponent * 301 / 1000;
  static constexpr bool is_iec559 = true;
  static constexpr uint16_t infinity_bits = (2 * bias + 1) << mantissa;

  static constexpr F min() noexcept { return F::from_bits(1 << mantissa); }
  static constexpr F max() noexcept { return F::from_bits(infinity_bits - 1); }
  static constexpr F lowest() noexcept { return -max(); }
  static constexpr F epsilon() noexcept { return F::from_bits((bias - mantissa) << mantissa); }
  static constexpr F round_error() noexcept { return F(0.5f); }
  static constexpr F infinity() noexcept { return F::from_bits(infinity_bits); }
  static constexpr F quiet_NaN() noexcept {
    return F::from_bits(infinity_bits | 1 << (mantissa - 1));
  }
  static constexpr F signaling_NaN() noexcept {
    return F::from_bits(infinity_bits | 1 << (mantissa - 2));
  }
  static constexpr F denorm_min() noexcept { return F::from_bits(1); }
};

}  // namespace base
}  // namespace grapnel

template <>
struct std::numeric_limits<grapnel::Half> : grapnel::base::SixteenBitLimits<grapnel::Half, 10, 15> {
};
template <>
struct std::numeric_limits<grapnel::BFloat16>
    : grapnel::base::SixteenBitLimits<grapnel::BFloat16, 7, 127> {};
