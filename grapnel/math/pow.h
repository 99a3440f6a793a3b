/// pow, as a formula over the scalar vocabulary: |x|^y = 2^(y log2 |x|), then the sign and the
/// special cases of C.
///
/// An error in the exponent becomes a relative error of the result, and the exponent may be as
/// large as the format's largest, so the logarithm needs some ten bits more than the result has.
/// Floats compute in double; doubles carry the logarithm as a pair. Worst errors: 0.54 ulp for
/// floats, below 1.2 for doubles.
#pragma once

#include "grapnel/math/log.h"

namespace grapnel {

namespace detail {

/// Base 2 logarithm of a positive double, good to some 2^-37.
template <class D>
GRAPNEL_INLINE D log2_for_f32(D x) {
  // Every float is a normal double.
  const Decomposed<D> a = decompose(x);
  const D f = a.m - 1.0;
  const D s = f / (2.0 + f);
  const D series = poly(s * s, 0x1.71547652bedf4p+1, 0x1.ec709d12ce696p-1, 0x1.27777fe8baef5p-1,
                        0x1.a58d88cf6d2bep-2, 0x1.5ce85329481fbp-2);
  return fma(s, series, small_to_float(a.field, D(static_cast<double>(Format<D>::bias))));
}

/// Base 2 logarithm of a positive double as a pair, good to some 2^-66.
template <class S>
GRAPNEL_INLINE Pair<S> log2_pair(S x) {
  const ReducedLog<S> a = reduce_log(x);
  // s = f / (2 + f), with the remainder of the division in s.lo.
  const Pair<S> d = fast_two_sum(S(2.0), a.f);
  const S inverse = 1.0 / d.hi;
  const S s_hi = a.f * inverse;
  const Pair<S> s{s_hi, inverse * (fma(-s_hi, d.hi, a.f) - s_hi * d.lo)};
  // log2(1 + f) = c1 s + s^3 (c3 + z tail). From the tail on, plain doubles are fine enough.
  const Pair<S> square = two_prod(s.hi, s.hi);
  const Pair<S> z{square.hi, fma(2.0 * s.hi, s.lo, square.lo)};
  const S tail = poly_split(z.hi, 0x1.2776c50ef9bfcp-1, 0x1.a61762a7aedddp-2, 0x1.484b13d6acff1p-2,
                            0x1.0c9a853ae8af9p-2, 0x1.c68ee966c788bp-3, 0x1.8a09b6a5206e5p-3,
                            0x1.58fce5cdfc9c1p-3, 0x1.61effdcdf03ccp-3);
  const Pair<S> factor =
      fast_two_sum(S(0x1.ec709dc3a03fdp-1), fma(z.hi, tail, S(0x1.d27f05548af0cp-55)));
  const auto times = [](Pair<S> p, Pair<S> q) __attribute__((always_inline)) {
    const Pair<S> product = two_prod(p.hi, q.hi);
    return Pair<S>{product.hi, product.lo + fma(p.hi, q.lo, p.lo * q.hi)};
  };
  const Pair<S> linear = times(s, Pair<S>{0x1.71547652b82fep+1, 0x1.777d0ffda0d24p-55});
  const Pair<S> cubic = times(times(s, z), factor);
  const Pair<S> fraction = fast_two_sum(linear.hi, cubic.hi);
  const Pair<S> sum = fast_two_sum(a.e, fraction.hi);
  return {sum.hi, sum.lo + (fraction.lo + (linear.lo + cubic.lo))};
}

/// The logarithms of 0, infinity and NaN are put in here; then the product with y and its power
/// come out right.
template <class S>
GRAPNEL_INLINE S log2_with_edges(S size, S log2_size) {
  return select(size == 0.0, -infinity<S>(), select(size < infinity<S>(), log2_size, size));
}

template <class S>
GRAPNEL_INLINE S pow_of_size(S size, S y) {
  if constexpr (is_f32<S>) {
    const auto wide = widen(size);
    using D = decltype(widen(size));
    const D product = widen(y) * log2_with_edges(wide, log2_for_f32(wide));
    const D t = upper(D(-200.0), lower(D(200.0), product));
    const Whole<D> w = nearest_whole(t, 1.0);
    const D r = t - w.k;
    const D fraction = fma(r,
                           poly(r, 0x1.62e430af2ee4ap-1, 0x1.ebfbdc3c150f1p-3, 0x1.c6aee88500004p-5,
                                0x1.3b2d4d0c670efp-7, 0x1.5f3e57764c6c7p-10, 0x1.41fbaabe4bc1fp-13),
                           D(1.0));
    return narrow(fraction * pow2(w));
  } else {
    const Pair<S> log = log2_pair(size);
    const S log_hi = log2_with_edges(size, log.hi);
    const S product = y * log_hi;
    const S t = upper(S(-1100.0), lower(S(1100.0), product));
    // Where the product was cut, or is infinite, there is no meaningful remainder.
    const S t_lo = select(abs(product) < 1100.0, fma(y, log_hi, -product) + y * log.lo, S(0.0));
    const Whole<S> w = nearest_whole(t, 1.0);
    return scale_by_pow2(exp2_of_fraction((t - w.k) + t_lo), w);
  }
}

}  // namespace detail

/// x to the power y, with the special cases of C99.
template <class S>
GRAPNEL_INLINE S pow(S x, S y) {
  const S size = detail::pow_of_size(abs(x), y);
  const S half = 0.5 * y;
  const auto whole = floor(y) == y;
  const auto half_whole = floor(half) == half;
  const auto odd = whole & !half_whole;
  const S with_sign = select(odd, copysign(size, x), size);
  // A negative base has a real power only for whole exponents; -0 and -infinity have limits for
  // all.
  const auto negative = x < 0.0;
  const auto bounded = x > -infinity<S>();
  const auto unreal = negative & bounded & !whole;
  const auto base_one = x == 1.0;
  const auto base_minus_one = x == -1.0;
  const auto y_zero = y == 0.0;
  const auto y_infinite = abs(y) == infinity<S>();
  const auto one = y_zero | base_one | (base_minus_one & y_infinite);
  return select(one, S(1.0), select(unreal, quiet_nan<S>(), with_sign));
}

}  // namespace grapnel
