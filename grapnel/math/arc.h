/// Arc sine, arc cosine, arc tangent and the angle of a point.
///
/// Within 1.5 ulp in f32 and 2 ulp in f64 everywhere; signed zeros, infinities and NaN as in C99.
/// Coefficients are made by tools/fit_trig.py.
#pragma once

#include "grapnel/math/poly.h"
#include "grapnel/math/scalar.h"

namespace grapnel {
namespace detail {

/// pi/2 as the nearest S and what that lacks.
template <class S>
GRAPNEL_INLINE Pair<S> half_pi() {
  if constexpr (is_f32<S>) return {S(0x1.921fb6p+0), S(-0x1.777a5cp-25)};
  else return {S(0x1.921fb54442d18p+0), S(0x1.1a62633145c07p-54)};
}

/// y, with the other sign where x is negative: odd functions are computed from |x|.
template <class S>
GRAPNEL_INLINE S odd_in(S x, S y) {
  return from_bits(bits(y) ^ bits(sign_bit(x)));
}

/// atan(t) for 0 <= t <= 1, the last step left open: t + rest.
template <class Result, class S>
GRAPNEL_INLINE S atan_rest(S t) {
  const S z = t * t;
  S p;
  if constexpr (is_f32<Result> && is_f32<S>)
    p = poly(z, -0x1.55553ep-2, 0x1.9991e4p-3, -0x1.242086p-3, 0x1.c08c4ap-4, -0x1.5808eep-4,
             0x1.da28a6p-5, -0x1.fd7916p-6, 0x1.641c8p-7, -0x1.d344ecp-10);
  else if constexpr (is_f32<Result>)
    p = poly(z, -0x1.5555510408cdp-2, 0x1.9997e030441f6p-3, -0x1.24737367fc06cp-3,
             0x1.c4f1df2c6fd4ap-4, -0x1.68e6f27da3bf4p-4, 0x1.1422a5674ca9p-4,
             -0x1.6e192eaab365fp-5, 0x1.714a3b565f408p-6, -0x1.df9531a86741dp-8,
             0x1.23f78edd8d4bep-10);
  else
    // The first terms cancel, so they are summed from the smallest up.
    p = poly(z, -0x1.5555555555526p-2, 0x1.99999999955b1p-3, -0x1.249249237f4aap-3,
             0x1.c71c717fcc619p-4, -0x1.745d11ae3ff0fp-4, 0x1.3b136697dd766p-4,
             -0x1.110e51151f43dp-4, 0x1.e1bba5a1890d3p-5, -0x1.ae5e6f621d6dap-5,
             0x1.82dacc9d867a3p-5, -0x1.59a3e35385ce1p-5, 0x1.2c2e25c9e5155p-5,
             -0x1.e9f963a8a7b77p-6, 0x1.683bfd3153526p-6, -0x1.c78e535779674p-7,
             0x1.d7b7184961cd7p-8, -0x1.7a3782147c892p-9, 0x1.b3f7dc4860145p-11,
             -0x1.3f33c6586c14ep-13, 0x1.bbe9973c92e96p-17);
  return t * z * p;
}

/// The angle of the point (x, y), in the arithmetic of S, good for a result of type Result.
template <class Result, class S>
GRAPNEL_INLINE S angle(S y, S x) {
  using I = IntOf<S>;
  const auto steep = abs(y) > abs(x);
  const auto left = bits(x) < I(0.0);  // -0 is on the left
  const S low = select(steep, abs(x), abs(y));
  const S high = select(steep, abs(y), abs(x));
  // Zero over zero is on the axis, infinity over infinity on the diagonal.
  const S t = select(low == high, select(high == S(0.0), S(0.0), S(1.0)), low / high);
  const S rest = atan_rest<Result>(t);
  // From the nearest half axis, 0, pi/2 or pi, by t + rest one way or the other.
  const auto [half, half_lo] = half_pi<S>();
  const S axis = select(steep, half, select(left, half + half, S(0.0)));
  const S axis_lo = select(steep, half_lo, select(left, half_lo + half_lo, S(0.0)));
  const S signed_t = odd_in(x, select(steep, -t, t));
  const S signed_rest = odd_in(x, select(steep, -rest, rest));
  return copysign(axis + (signed_t + (signed_rest + axis_lo)), y);
}

/// Both arc functions near their ends go through the half angle: asin(x) = pi/2 - 2 asin(sqrt((1 -
/// x) / 2)).
template <class S>
GRAPNEL_INLINE auto near_an_end(S x) {
  return abs(x) > S(0.5);
}
/// root and rest, where root + rest is that half angle near an end and asin(|x|) elsewhere.
template <class S>
GRAPNEL_INLINE Pair<S> arc_sine(S x) {
  using I = IntOf<S>;
  const S size = abs(x);
  const auto is_half = near_an_end(x);
  const S half = fma(S(-0.5), size, S(0.5));
  const S root = sqrt(half);
  // What the root lost by rounding is (half - root^2) / (2 root). Four percent off will do for 1 /
  // root.
  const I guess = is_f32<S> ? I::of(static_cast<typename I::value_type>(0x5f375000))
                            : I::of(static_cast<typename I::value_type>(0x5fe6ea0000000000));
  const S root_rest = fma(-root, root, half) * (from_bits(guess - (bits(half) >> 1)) * 0.5);
  const S s = select(is_half, root, size);
  const S z = select(is_half, half, size * size);
  S p;
  if constexpr (is_f32<S>)
    p = poly(z, 0x1.5555c8p-3, 0x1.330204p-4, 0x1.747bb8p-5, 0x1.8c3e48p-6, 0x1.595c7p-5);
  else
    p = poly(z, 0x1.555555555539p-3, 0x1.333333336e825p-4, 0x1.6db6db4278e9ap-5,
             0x1.f1c72c398d07ap-6, 0x1.6e89f43022899p-6, 0x1.1c6be2b4e2f1cp-6, 0x1.c6fdaacd10aafp-7,
             0x1.8ec39e82f6775p-7, 0x1.abc98919ae09ap-8, 0x1.3ff8df51cad47p-6,
             -0x1.09da15cad7cfbp-6, 0x1.056fe673ca391p-5);
  return {s, fma(s * z, p, select(is_half, root_rest, S(0.0)))};
}

}  // namespace detail

template <class S>
GRAPNEL_INLINE S asin(S x) {
  const auto is_half = detail::near_an_end(x);
  const auto [root, rest] = detail::arc_sine(x);
  const auto [axis, axis_lo] = detail::half_pi<S>();
  const auto [end, end_lo] = fast_two_sum(axis, -(root + root));
  return copysign(select(is_half, end + (end_lo + (axis_lo - (rest + rest))), root + rest), x);
}

template <class S>
GRAPNEL_INLINE S acos(S x) {
  const auto is_half = detail::near_an_end(x);
  const auto [root, rest] = detail::arc_sine(x);
  const auto [half, half_lo] = detail::half_pi<S>();
  const auto left = x < S(0.0);
  // pi/2 - asin(x) in the middle, 2 asin(..) at the right end and pi - 2 asin(..) at the left one.
  const S axis = select(is_half, select(left, half + half, S(0.0)), half);
  const S axis_lo = select(is_half, select(left, half_lo + half_lo, S(0.0)), half_lo);
  const S big = detail::odd_in(x, select(is_half, root + root, -root));
  const S little = detail::odd_in(x, select(is_half, rest + rest, -rest));
  return axis + (big + (little + axis_lo));
}

template <class S>
GRAPNEL_INLINE S atan(S x) {
  const S size = abs(x);
  const auto steep = size > S(1.0);
  const S t = select(steep, 1.0 / size, size);
  const S rest = detail::atan_rest<S>(t);
  const auto [axis, axis_lo] = detail::half_pi<S>();
  return copysign(select(steep, axis - (t + (rest - axis_lo)), t + rest), x);
}

/// The angle of the point (x, y), between -pi and pi.
template <class S>
GRAPNEL_INLINE S atan2(S y, S x) {
  // The rounding of y / x alone would spend a float's whole allowance; doubles have half an ulp to
  // spare.
  if constexpr (is_f32<S>) return narrow(detail::angle<S>(widen(y), widen(x)));
  else return detail::angle<S>(y, x);
}

}  // namespace grapnel
