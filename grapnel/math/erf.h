/// erf and erfc, as formulas over the scalar vocabulary.
///
/// erf is x times a polynomial near zero and 1 - exp(-g(|x|)) elsewhere, where g is a polynomial
/// for -log(erfc). erfc keeps its relative accuracy down to the smallest subnormal: exp(-x^2) times
/// a slowly varying factor, which is a polynomial in u = (t - 3) / (t + 3). Worst errors: erf 1.1
/// ulp; erfc 0.53 ulp for floats (computed in double, because the product of two rounded factors is
/// not good enough) and below 1.8 ulp for doubles.
#pragma once

#include "grapnel/math/exp.h"

namespace grapnel {

/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
template <class S>
GRAPNEL_INLINE S erf(S x) {
  const S size = abs(x);
  const S z = x * x;
  if constexpr (is_f32<S>) {
    const S near = poly(z, 0x1.06eba8p-3, -0x1.81273ep-2, 0x1.ce2ce6p-4, -0x1.b7f71ap-6,
                        0x1.53f224p-8, -0x1.a3515ep-11, 0x1.4771fep-14);
    const S g = poly(lower(S(4.0), size), 0x1.72eb14p-12, 0x1.2085b2p+0, 0x1.46c58p-1,
                     0x1.a60acap-4, -0x1.654314p-6, 0x1.814fc6p-9, -0x1.85341p-13);
    return select(size < 1.0, fma(x, near, x), copysign(1.0 - detail::exp_in_range(-g), x));
  } else {
    const S near =
        poly_split(z, 0x1.06eba8214db68p-3, -0x1.812746b03799dp-2, 0x1.ce2f21a03f8b6p-4,
                   -0x1.b82ce311a95cep-6, 0x1.565bcceed1cb3p-8, -0x1.c02daeb4c63a3p-11,
                   0x1.f9a2965d44424p-14, -0x1.f4c8271059ffep-17, 0x1.b96ae71ac6b9fp-20,
                   -0x1.5b88c26adcde5p-23, 0x1.d3bc80ca0fb57p-27, -0x1.a1c10fae962a1p-31);
    const S g = poly_split(lower(S(6.0), size), 0x1.138ec46dd8081p-21, 0x1.20dd1e2f135b3p+0,
                           0x1.45f635b01d527p-1, 0x1.a4ab274b9ab8dp-4, -0x1.371999bf86294p-6,
                           -0x1.b1a19d84dfb3fp-12, 0x1.f70ab5633826ap-10, -0x1.954ccdc3652a3p-11,
                           0x1.1e61c93606fb2p-13, 0x1.4786de927a05dp-16, -0x1.7a08bc4d2eac8p-16,
                           0x1.1fda65f1b4736p-17, -0x1.1bd7304ed31eep-19, 0x1.8cd0266d64c98p-22,
                           -0x1.8a8ec8d64b5c8p-25, 0x1.0b50b39c1d5aep-28, -0x1.bc44f55e3508ap-33,
                           0x1.5657d98a966cbp-38);
    return select(size < 1.0, fma(x, near, x), copysign(1.0 - detail::exp_in_range(-g), x));
  }
}

namespace detail {

/// erfc of a double that came from a float, good to some 2^-29.
template <class D>
GRAPNEL_INLINE D erfc_for_f32(D x) {
  const D t = lower(D(10.2), abs(x));
  const D inverse = 1.0 / (t + 3.0);
  const D u = fma(inverse, D(-6.0), D(1.0));
  const D factor = poly_split(u, 0x1.12f21de119be6p+0, -0x1.c44c47f0f887ep-1, 0x1.2e32668a4bdb9p-1,
                              -0x1.3deadffd3d98bp-2, 0x1.e997b886c663dp-4, -0x1.b7b353076b75ep-6,
                              -0x1.41e1ed7b9c5f6p-10, 0x1.92738ae6ea0b4p-9, -0x1.fbbcdf67a6af2p-12,
                              -0x1.475b84aea3cfdp-12, 0x1.04f22b4cdb946p-17);
  const ReducedExp<D> e = reduce_exp(-(t * t));
  const D tail = poly(e.r, 0x1.00000042eabb3p-1, 0x1.55555597fefd4p-3, 0x1.5554805876a05p-5,
                      0x1.11107cf2436d5p-7, 0x1.6d968327e0339p-10, 0x1.a1b800d575922p-13);
  const D y = (1.0 + fma(e.r * e.r, tail, e.r)) * pow2(e.k) * (factor * inverse);
  return select(x < 0.0, 2.0 - y, y);
}

/// erfc of a double. Square, reciprocal, factor and exponential are pairs; only the last sum is
/// rounded.
template <class S>
GRAPNEL_INLINE S erfc_f64(S x) {
  const S t = lower(S(28.0), abs(x));
  const Pair<S> d = two_sum(S(3.0), t);
  const S inverse = 1.0 / d.hi;
  const S inverse_lo = inverse * (fma(-inverse, d.hi, S(1.0)) - inverse * d.lo);
  const Pair<S> subtrahend = two_prod(inverse, S(-6.0));
  const Pair<S> difference = two_sum(S(1.0), subtrahend.hi);
  const S u = difference.hi;
  const S u_lo = difference.lo + fma(inverse_lo, S(-6.0), subtrahend.lo);
  // c0 + c1 u + curve u^2: the first two terms are pairs, and u_lo counts with the slope there.
  const S tail = poly_split(u, -0x1.b78993d6991f6p-6, -0x1.3dd3e71bbe871p-10, 0x1.8dae3a1be670bp-9,
                            -0x1.1f78e037ea439p-11, -0x1.2238fb065b87cp-12, 0x1.c324fb3d46bf7p-14,
                            0x1.fdfe90dc9b9f9p-16, -0x1.2516b0a988adfp-16, -0x1.3eaee13ce4f85p-18,
                            0x1.72c2d041dcfa7p-19, 0x1.0bc9a4903b5b0p-20, -0x1.b094e04e4e20bp-22,
                            -0x1.f0104cc1d1b3dp-23, 0x1.5ecdd97ffdb18p-25, 0x1.972bc9786bc38p-25,
                            0x1.f9305a96d38cdp-30, -0x1.9bba1e2c7ff1fp-28, -0x1.7f6034c06224ep-30);
  const S curve = fma(u, fma(u, fma(u, tail, S(0x1.e995f11b190a8p-4)), S(-0x1.3deb21415dd8bp-2)),
                      S(0x1.2e326945de2a5p-1));
  const Pair<S> constant{0x1.12f21ddd9f5e2p+0, -0x1.7b4fcc14cfeaep-54};
  const S c1 = -0x1.c44c471baa375p-1;
  const Pair<S> linear = two_prod(u, c1);
  const Pair<S> line = fast_two_sum(constant.hi, linear.hi);
  const S small = line.lo + (constant.lo + fma(fma(2.0 * u, curve, c1), u_lo, linear.lo));
  const Pair<S> factor = fast_two_sum(line.hi, fma(u * u, curve, small));
  const Pair<S> ratio = two_prod(factor.hi, inverse);
  const S ratio_lo = ratio.lo + fma(factor.hi, inverse_lo, factor.lo * inverse);

  const Pair<S> square = two_prod(t, t);
  const ReducedExp<S> e = reduce_exp(-square.hi);
  const S r_lo = e.r_lo - square.lo;
  const S r = e.r_hi + r_lo;
  const Pair<S> exponential = fast_two_sum(S(1.0), e.r_hi);
  const S exponential_lo = exponential.lo + fma(r * r, exp_tail(r), r_lo);

  const S product =
      fma(ratio.hi, exponential.hi, fma(ratio.hi, exponential_lo, ratio_lo * exponential.hi));
  const S y = scale_by_pow2(product, e.k);
  return select(x < 0.0, 2.0 - y, y);
}

}  // namespace detail

/// 1 - erf(x), without the cancellation for large x.
template <class S>
GRAPNEL_INLINE S erfc(S x) {
  if constexpr (is_f32<S>) return narrow(detail::erfc_for_f32(widen(x)));
  else return detail::erfc_f64(x);
}

}  // namespace grapnel
