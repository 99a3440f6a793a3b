/// Building blocks of the transcendental functions: polynomials and sums that remember their
/// rounding error.
///
/// `poly(x, c0, c1, ...)` is c0 + c1 x + ... by Horner's rule, one fma per step, fully unrolled;
/// literals are rounded to the type of x. `poly_split` has the same value up to rounding and half
/// the dependent steps: use it for long polynomials whose own rounding error is scaled down
/// afterwards. All coefficients in this folder are our own fits; tools/fit_polynomials.py makes
/// them.
#pragma once

#include "grapnel/math/scalar.h"

namespace grapnel {

template <class S>
GRAPNEL_INLINE S poly(S, double c0) {
  return S(c0);
}
template <class S, class... Rest>
GRAPNEL_INLINE S poly(S x, double c0, double c1, Rest... rest) {
  return fma(x, poly(x, c1, rest...), S(c0));
}

namespace detail {
// Terms 0, 2, 4, ... as a polynomial in x2 = x * x.
template <class S>
GRAPNEL_INLINE S even_terms(S, double c0) {
  return S(c0);
}
template <class S>
GRAPNEL_INLINE S even_terms(S, double c0, double) {
  return S(c0);
}
template <class S, class... Rest>
GRAPNEL_INLINE S even_terms(S x2, double c0, double, double c2, Rest... rest) {
  return fma(x2, even_terms(x2, c2, rest...), S(c0));
}
}  // namespace detail

/// c0 + c1 x + ... as two independent chains in x * x, joined by one fma.
template <class S, class... Rest>
GRAPNEL_INLINE S poly_split(S x, double c0, double c1, Rest... rest) {
  const S x2 = x * x;
  return fma(x, detail::even_terms(x2, c1, rest...), detail::even_terms(x2, c0, c1, rest...));
}

/// hi + lo, an unevaluated sum: the rounded value and what rounding lost.
template <class S>
struct Pair {
  S hi, lo;
};

/// a + b exactly, for any a and b.
template <class S>
GRAPNEL_INLINE Pair<S> two_sum(S a, S b) {
  const S hi = a + b;
  const S b_part = hi - a;
  return {hi, (a - (hi - b_part)) + (b - b_part)};
}

/// a + b exactly when a is zero or no smaller than b in magnitude; half the work of two_sum.
template <class S>
GRAPNEL_INLINE Pair<S> fast_two_sum(S a, S b) {
  const S hi = a + b;
  return {hi, (a - hi) + b};
}

/// a * b exactly, unless a part underflows.
template <class S>
GRAPNEL_INLINE Pair<S> two_prod(S a, S b) {
  const S hi = a * b;
  return {hi, fma(a, b, -hi)};
}

/// The smaller of two numbers, and b when either is NaN (one instruction on x86).
template <class S>
GRAPNEL_INLINE S lower(S a, S b) {
  return select(a < b, a, b);
}
/// The greater of two numbers, and b when either is NaN.
template <class S>
GRAPNEL_INLINE S upper(S a, S b) {
  return select(a > b, a, b);
}

}  // namespace grapnel
