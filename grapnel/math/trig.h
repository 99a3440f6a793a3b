/// Sine, cosine and tangent; math_arc.h has their inverses.
///
/// Within 1.5 ulp in f32 and 2 ulp in f64 for every finite argument, however large; odd and even to
/// the bit. An infinite argument gives NaN. Each takes a Reach: see Note [Reach] in
/// math_trig_reduce.h, where the hard part is. What is left here are angles near zero. Coefficients
/// are made by tools/fit_trig.py.
#pragma once

#include "grapnel/math/arc.h"
#include "grapnel/math/trig_reduce.h"

namespace grapnel {
namespace detail {

/// sin(hi + lo) for |hi| up to pi/2 and a little beyond.
template <class S>
GRAPNEL_INLINE S sin_near(S hi, S lo) {
  // sin(r) = r (1 + u), u = c z + z^2 P(z), z = r^2. Around pi/2 u is large, so z keeps its
  // rounding error.
  const S z = hi * hi;
  const S z_rest = fma(hi + hi, lo, fma(hi, hi, -z));
  S p, c;
  if constexpr (is_f32<S>) {
    c = S(-0x1.555556p-3);
    p = poly(z, 0x1.111136p-7, -0x1.a023ccp-13, 0x1.72cddcp-19, -0x1.b623c2p-26);
  } else {
    c = S(-0x1.5555555555555p-3);
    p = poly(z, 0x1.11111111110c8p-7, -0x1.a01a01a014d6fp-13, 0x1.71de3a52a0af7p-19,
             -0x1.ae6454d4717c9p-26, 0x1.6123cd05c33f8p-33, -0x1.ae4383cafbe87p-41,
             0x1.88328e32e4746p-49);
  }
  // du/dz is -0.129 at pi/2; further in, z_rest matters less.
  const S u = fma(z, c, fma(z_rest, S(-0.129), z * (z * p)));
  // hi u is rounded only once, together with the rest.
  const S y = fma(hi, u, hi);
  return y + (fma(hi, u, hi - y) + fma(lo, u, lo));
}

/// tan(hi + lo), or -1 / tan(hi + lo) where `inverse`, for |hi| up to pi/4 and a little beyond.
template <class S, class Mask>
GRAPNEL_INLINE S tan_near(S hi, S lo, Mask inverse) {
  // tan(r) = r (1 + z A(z)) / (1 + z B(z)), z = r^2, as a quotient of pairs.
  const S z = hi * hi;
  S a, b;
  if constexpr (is_f32<S>) {
    a = poly(z, -0x1.c7ec8cp-4, 0x1.18e88p-10);
    b = poly(z, -0x1.c75078p-2, 0x1.055ddp-6);
  } else {
    a = poly(z, -0x1.1127ce44bd79fp-3, 0x1.c0cc7e6c9f94bp-9, -0x1.2b7013e0fd005p-16);
    b = poly(z, -0x1.dde93c77b4125p-2, 0x1.a46cf46e21212p-6, -0x1.46d1524c78a52p-12,
             0x1.0b1c23c1b6c13p-21);
  }
  // Into the numerator lo goes with the weight 1 + z: over 1 + z B(z) that is close to the slope of
  // tan.
  const auto [sine, sine_rest] = fast_two_sum(hi, fma(hi * z, a, fma(lo, z, lo)));
  const auto [cosine, cosine_rest] = fast_two_sum(S(1.0), z * b);
  const S above = select(inverse, -cosine, sine);
  const S above_rest = select(inverse, -cosine_rest, sine_rest);
  const S below = select(inverse, sine, cosine);
  const S below_rest = select(inverse, sine_rest, cosine_rest);
  const S scale = 1.0 / below;
  const S quotient = above * scale;
  const S missing = fma(-quotient, below, above) + fma(-quotient, below_rest, above_rest);
  return fma(missing, scale, quotient);
}

}  // namespace detail

template <Reach reach = Reach::full, class S>
GRAPNEL_INLINE S sin(S x) {
  const auto [hi, lo, n] = detail::reduce<reach, detail::Grid::whole>(abs(x));
  return detail::odd_in(x, detail::flip_if_odd(detail::sin_near(hi, lo), n));
}

template <Reach reach = Reach::full, class S>
GRAPNEL_INLINE S cos(S x) {
  // cos(x) = sin(x + pi/2), and n - 1/2 multiples of pi leave n half turns of the sine.
  const auto [hi, lo, n] = detail::reduce<reach, detail::Grid::half_odd>(abs(x));
  return detail::flip_if_odd(detail::sin_near(hi, lo), n);
}

template <Reach reach = Reach::full, class S>
GRAPNEL_INLINE S tan(S x) {
  const auto [hi, lo, n] = detail::reduce<reach, detail::Grid::half>(abs(x));
  // The lowest bit, tested as a sign: g++ 12 makes no vector code of (n & 1) != 0.
  const auto is_odd = (n << (is_f32<S> ? 31 : 63)) < IntOf<S>(0.0);
  return detail::odd_in(x, detail::tan_near(hi, lo, is_odd));
}

}  // namespace grapnel
