/// exp, exp2, expm1 and the hyperbolic functions, as formulas over the scalar vocabulary.
///
/// Every function is one straight line of exactly specified operations, so that it vectorises, can
/// be emitted as code and has the same bits everywhere. Worst errors are in
/// tests/ops/math_exp_test.cpp: below 1.3 ulp for floats and 1.4 ulp for doubles, subnormal results
/// included.
///
/// All of them start by writing x = k ln 2 + r with k whole and |r| <= ln 2 / 2: start reading at
/// `reduce_exp`.
#pragma once

#include "grapnel/math/poly.h"

namespace grapnel {

namespace detail {

/// Layout of a floating-point format: value = 2^(field - bias) * 1.mantissa.
template <class S>
struct Format {
  using T = typename S::value_type;
  using I = typename IntOf<S>::value_type;
  static constexpr int mantissa_bits = std::numeric_limits<T>::digits - 1;
  static constexpr I bias = std::numeric_limits<T>::max_exponent - 1;
  static constexpr double min_normal = std::numeric_limits<T>::min();
};

/// A whole number k twice: as a float, and as an integer whose low bits hold k + 2 bias. Higher
/// bits are junk that the shift into the exponent field pushes out.
template <class S>
struct Whole {
  S k;
  IntOf<S> bits;
};

/// The whole number nearest to x * scale. Adding a number that has no room for a fraction rounds,
/// and leaves the result in the low bits: no conversion is needed, which AVX2 does not have for
/// doubles.
template <class S>
GRAPNEL_INLINE Whole<S> nearest_whole(S x, double scale) {
  const S roomless =
      1.5 / std::numeric_limits<typename S::value_type>::epsilon() + 2.0 * Format<S>::bias;
  const S sum = fma(x, S(scale), roomless);
  return {sum - roomless, bits(sum)};
}

/// 2^(k + shift), which has to be a normal number.
template <class S>
GRAPNEL_INLINE S pow2(Whole<S> w, int shift = 0) {
  using F = Format<S>;
  return from_bits((w.bits - IntOf<S>::of(F::bias - shift)) << F::mantissa_bits);
}

/// 2^(-k + shift), which has to be a normal number.
template <class S>
GRAPNEL_INLINE S pow2_negated(Whole<S> w, int shift = 0) {
  using F = Format<S>;
  return from_bits((IntOf<S>::of(3 * F::bias + shift) - w.bits) << F::mantissa_bits);
}

/// y * 2^k for y near 1 and any k a result may have. In two steps: the first is exact, so a
/// subnormal result is rounded once, and neither factor over- or underflows.
template <class S>
GRAPNEL_INLINE S scale_by_pow2(S y, Whole<S> w) {
  using F = Format<S>;
  const IntOf<S> half = shift_right_logical(w.bits, 1);
  return y * from_bits(half << F::mantissa_bits) * from_bits((w.bits - half) << F::mantissa_bits);
}

/// x = k ln 2 + r_hi + r_lo. The difference r_hi is exact and |r_lo| is tiny; r is their rounded
/// sum.
template <class S>
struct ReducedExp {
  Whole<S> k;
  S r_hi, r_lo, r;
};

template <class S>
GRAPNEL_INLINE ReducedExp<S> reduce_exp(S x) {
  const Whole<S> w = nearest_whole(x, 0x1.71547652b82fep+0);
  const S r_hi = fma(w.k, S(is_f32<S> ? -0x1.62e43p-1 : -0x1.62e42fefa39efp-1), x);
  const S minus_ln2_lo = is_f32<S> ? 0x1.05c61p-29 : -0x1.abc9e3b39803fp-56;
  return {w, r_hi, w.k * minus_ln2_lo, fma(w.k, minus_ln2_lo, r_hi)};
}

/// (exp(r) - 1 - r) / r^2, accurate relative to exp(r).
template <class S>
GRAPNEL_INLINE S exp_tail(S r) {
  if constexpr (is_f32<S>)
    return poly(r, 0x1.0p-1, 0x1.555492p-3, 0x1.5554cp-5, 0x1.123992p-7, 0x1.6d7a5cp-10);
  else
    return poly_split(r, 0x1.0000000000005p-1, 0x1.555555555554fp-3, 0x1.5555555552277p-5,
                      0x1.1111111114e2fp-7, 0x1.6c16c17ec64fep-10, 0x1.a01a0186c6750p-13,
                      0x1.a019a7d3899c4p-16, 0x1.71de67631552cp-19, 0x1.28a170f28b247p-22,
                      0x1.ae975fe7db092p-26);
}

/// The same, accurate relative to exp(r) - 1.
template <class S>
GRAPNEL_INLINE S expm1_tail(S r) {
  if constexpr (is_f32<S>)
    return poly(r, 0x1.0p-1, 0x1.555554p-3, 0x1.5554f8p-5, 0x1.1112dcp-7, 0x1.6d3a3ep-10,
                0x1.9e6946p-13);
  else return exp_tail(r);
}

/// exp(x) for x whose result is a normal number.
template <class S>
GRAPNEL_INLINE S exp_in_range(S x) {
  const ReducedExp<S> e = reduce_exp(x);
  return (1.0 + fma(e.r * e.r, exp_tail(e.r), e.r)) * pow2(e.k);
}

/// 2^r for |r| <= 1/2.
template <class S>
GRAPNEL_INLINE S exp2_of_fraction(S r) {
  if constexpr (is_f32<S>)
    return fma(r,
               poly(r, 0x1.62e43p-1, 0x1.ebfbdcp-3, 0x1.c6af7cp-5, 0x1.3b2dep-7, 0x1.5f083p-10,
                    0x1.416b68p-13),
               S(1.0));
  else
    return fma(r,
               poly_split(r, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c59cp-3, 0x1.c6b08d704a0d4p-5,
                          0x1.3b2ab6fba11f4p-7, 0x1.5d87fe78b3b93p-10, 0x1.4309130c017f9p-13,
                          0x1.ffcbfbf8cc2bep-17, 0x1.62bfcddd401d7p-20, 0x1.b5260d910e6a9p-24,
                          0x1.e611a2c5eca21p-28, 0x1.e80f04c6839a4p-32),
               S(1.0));
}

}  // namespace detail

/// e^x.
template <class S>
GRAPNEL_INLINE S exp(S x) {
  // Beyond these bounds the result is infinite or zero anyway, and k would leave its field.
  x = upper(S(is_f32<S> ? -104.0 : -746.0), lower(S(is_f32<S> ? 89.0 : 710.0), x));
  const auto e = detail::reduce_exp(x);
  return detail::scale_by_pow2(1.0 + fma(e.r * e.r, detail::exp_tail(e.r), e.r), e.k);
}

/// 2^x; exact for whole x.
template <class S>
GRAPNEL_INLINE S exp2(S x) {
  x = upper(S(is_f32<S> ? -151.0 : -1076.0), lower(S(is_f32<S> ? 129.0 : 1025.0), x));
  const auto w = detail::nearest_whole(x, 1.0);
  return detail::scale_by_pow2(detail::exp2_of_fraction(x - w.k), w);
}

/// e^x - 1, accurate near zero.
template <class S>
GRAPNEL_INLINE S expm1(S x) {
  const S bounded = upper(S(is_f32<S> ? -18.0 : -40.0), lower(S(is_f32<S> ? 89.0 : 710.0), x));
  const auto e = detail::reduce_exp(bounded);
  // 2^k (1 + r_hi) - 1 is the bulk and takes one rounding. All is halved, since 2^k alone may
  // overflow.
  const S scale = detail::pow2(e.k, -1);
  const S bulk = fma(scale, e.r_hi, scale - 0.5);
  const S y = 2.0 * fma(scale, fma(e.r * e.r, detail::expm1_tail(e.r), e.r_lo), bulk);
  return select(abs(x) < (is_f32<S> ? 0x1p-26 : 0x1p-54), x, y);
}

namespace detail {

/// (cosh(r) - 1) / z for z = r^2.
template <class S>
GRAPNEL_INLINE S cosh_tail(S z) {
  if constexpr (is_f32<S>) return poly(z, 0x1.0p-1, 0x1.5554e6p-5, 0x1.6d4f1p-10);
  else
    return poly(z, 0x1.000000000000cp-1, 0x1.555555554fd67p-5, 0x1.6c16c1863e16cp-10,
                0x1.a01994ffd9a86p-16, 0x1.28b1bd972a845p-22);
}

/// (sinh(r) - r) / (r z) for z = r^2.
template <class S>
GRAPNEL_INLINE S sinh_tail(S z) {
  if constexpr (is_f32<S>) return poly(z, 0x1.555556p-3, 0x1.110fbep-7, 0x1.a2e33cp-13);
  else
    return poly(z, 0x1.5555555555559p-3, 0x1.111111110f62ap-7, 0x1.a01a01b0204e7p-13,
                0x1.71ddf7af98718p-19, 0x1.af5ff4fa898dep-26);
}

/// sinh and cosh share everything but two signs. With x = k ln 2 + r:
/// sinh x = up-down * cosh r + up+down * sinh r, where up = 2^(k-1) and down = 2^(-k-1); cosh x the
/// other way round. No cancellation, no division and no special case near zero. Here up and down
/// are halved once more, because the largest results lie above 2^k, and the sum is doubled.
template <class S, bool is_sinh>
GRAPNEL_INLINE S hyperbolic(S x) {
  const S size = lower(S(is_f32<S> ? 89.5 : 710.5), abs(x));
  const ReducedExp<S> e = reduce_exp(size);
  const S up = pow2(e.k, -2);
  // Long before 2^(-k) becomes subnormal it is too small to matter.
  const S down = select(e.k.k < (is_f32<S> ? 64.0 : 512.0), pow2_negated(e.k, -2), S(0.0));
  const S even = is_sinh ? up - down : up + down;
  const S odd = is_sinh ? up + down : up - down;
  const S z = e.r * e.r;
  const S curve = fma(even, z * cosh_tail(z), odd * fma(e.r * z, sinh_tail(z), e.r_lo));
  if constexpr (is_sinh) return 2.0 * (fma(odd, e.r_hi, even) + curve);
  // up + down has up to twice as many digits as fit, so down joins the small terms.
  else return 2.0 * (fma(odd, e.r_hi, up) + (curve + down));
}

}  // namespace detail

/// (e^x - e^-x) / 2.
template <class S>
GRAPNEL_INLINE S sinh(S x) {
  const S y = copysign(detail::hyperbolic<S, true>(x), x);
  return select(abs(x) < (is_f32<S> ? 0x1p-13 : 0x1p-27), x, y);
}

/// (e^x + e^-x) / 2.
template <class S>
GRAPNEL_INLINE S cosh(S x) {
  return detail::hyperbolic<S, false>(x);
}

/// sinh x / cosh x, as n / (n + 2) with n = expm1(2 |x|).
template <class S>
GRAPNEL_INLINE S tanh(S x) {
  // Numerator and denominator keep what rounding takes from them, and one correction step with the
  // reciprocal puts it back: otherwise three roundings would add up to 2 ulp.
  const auto e = detail::reduce_exp(2.0 * lower(S(is_f32<S> ? 10.0 : 20.0), abs(x)));
  const S scale = detail::pow2(e.k);
  const Pair<S> bulk = fast_two_sum(scale - 1.0, scale * e.r_hi);
  const Pair<S> n =
      fast_two_sum(bulk.hi, fma(scale, fma(e.r * e.r, detail::expm1_tail(e.r), e.r_lo), bulk.lo));
  const S d = n.hi + 2.0;
  const S d_lo = ((2.0 - d) + n.hi) + n.lo;
  const S inverse = 1.0 / d;
  const S quotient = n.hi * inverse;
  const S missing = fma(-quotient, d, n.hi) + fma(-quotient, d_lo, n.lo);
  return copysign(fma(missing, inverse, quotient), x);
}

}  // namespace grapnel
