/// log, log2, log10 and log1p, as formulas over the scalar vocabulary.
///
/// All start by writing x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), so that arguments
/// around 1, where the logarithm vanishes, have e = 0 and lose nothing. Floats then use a
/// polynomial in f. Doubles would need one of degree twenty, and use the quickly converging series
/// in s = f / (2 + f) instead. Worst errors (see tests/ops/math_exp_test.cpp): 1.02 ulp for log1p
/// of floats, below 1 ulp for the others.
#pragma once

#include "grapnel/math/exp.h"

namespace grapnel {

namespace detail {

/// x = 2^e * m, m in [sqrt(1/2), sqrt(2)); `field` is e + bias.
template <class S>
struct Decomposed {
  S m;
  IntOf<S> field;
};

/// For positive normal x; anything else gives some numbers.
template <class S>
GRAPNEL_INLINE Decomposed<S> decompose(S x) {
  using F = Format<S>;
  using I = IntOf<S>;
  const I root_half = bits(S(0.70710678118654752));
  const I mantissa = I::of((typename F::I{1} << F::mantissa_bits) - 1);
  const I above = bits(x) - root_half;
  // The bias is added before the shift so that a logical one does: AVX2 has no other for 64 bits.
  return {from_bits((above & mantissa) + root_half),
          shift_right_logical(above + I::of(F::bias << F::mantissa_bits), F::mantissa_bits)};
}

/// A small integer that is not negative, minus `less`, as a float: bits placed in the mantissa of
/// 2^mantissa_bits.
template <class S>
GRAPNEL_INLINE S small_to_float(IntOf<S> i, S less) {
  const S roomless = 1.0 / std::numeric_limits<typename S::value_type>::epsilon();
  return from_bits(i + bits(roomless)) - (roomless + less);
}

/// x = 2^e (1 + f).
template <class S>
struct ReducedLog {
  S e, f;
};

/// For positive finite x.
template <class S>
GRAPNEL_INLINE ReducedLog<S> reduce_log(S x) {
  using F = Format<S>;
  constexpr double lift = F::mantissa_bits + 2.0;
  const auto subnormal = x < F::min_normal;
  const Decomposed<S> d = decompose(
      select(subnormal, x * (4.0 / std::numeric_limits<typename S::value_type>::epsilon()), x));
  const S bias = static_cast<double>(F::bias);
  return {small_to_float(d.field, select(subnormal, bias + lift, bias)), d.m - 1.0};
}

/// What the formulas do not cover: log 0 is -infinity, of a negative number NaN, and infinity its
/// own logarithm.
template <class S>
GRAPNEL_INLINE S log_with_edges(S x, S y) {
  y = select(x < infinity<S>(), y, x);
  return select(x > 0.0, y, select(x == 0.0, -infinity<S>(), quiet_nan<S>()));
}

/// For doubles: log(1 + f) = f - half_square + rest, with |half_square| and |rest| well below |f|.
template <class S>
struct LogParts {
  S half_square, rest;
};
template <class S>
GRAPNEL_INLINE LogParts<S> log_parts(S f) {
  const S s = f / (2.0 + f);
  const S z = s * s;
  const S series = z * poly_split(z, 0x1.5555555555592p-1, 0x1.999999997ff07p-2,
                                  0x1.24924941e302ep-2, 0x1.c71c521286a7ep-3, 0x1.74663d5e1d54bp-3,
                                  0x1.39a1dbca5aab2p-3, 0x1.2f044bf11eaaep-3);
  const S half_square = 0.5 * f * f;
  return {half_square, s * (half_square + series)};
}

template <class S>
GRAPNEL_INLINE S ln2_lo() {
  return is_f32<S> ? -0x1.05c61p-29 : 0x1.abc9e3b39803fp-56;
}

/// log(1 + f) + e ln2_hi + extra, where `extra` is tiny: the natural logarithm of 2^e (1 + f) if it
/// is e ln2_lo.
template <class S>
GRAPNEL_INLINE S log_reduced(ReducedLog<S> a, S extra) {
  const S ln2_hi = is_f32<S> ? 0x1.62e43p-1 : 0x1.62e42fefa39efp-1;
  if constexpr (is_f32<S>) {
    const S tail =
        poly_split(a.f, -0x1.fffff8p-2, 0x1.55555p-2, -0x1.000438p-2, 0x1.99a41cp-3, -0x1.5423e8p-3,
                   0x1.226c8p-3, -0x1.0f51f8p-3, 0x1.087524p-3, -0x1.3814aap-4);
    const S small = fma(a.f * a.f, tail, extra);
    return fma(a.e, ln2_hi, a.f + small);
  } else {
    const LogParts<S> parts = log_parts(a.f);
    const S small = (parts.rest + extra) - parts.half_square;
    return fma(a.e, ln2_hi, a.f + small);
  }
}

/// For doubles: (log(1 + f) + e ln 2) * scale, where `scale` and `two` (the logarithm of 2) are
/// pairs. The product would cost most of an ulp, so its rounding errors are kept and added last.
template <class S>
GRAPNEL_INLINE S log_scaled(ReducedLog<S> a, Pair<S> scale, Pair<S> two) {
  const LogParts<S> parts = log_parts(a.f);
  const S square_error = fma(0.5 * a.f, a.f, -parts.half_square);
  const Pair<S> bulk = fast_two_sum(a.f, -parts.half_square);
  const Pair<S> product = two_prod(bulk.hi, scale.hi);
  const S product_lo =
      product.lo + fma(bulk.hi, scale.lo, (bulk.lo + (parts.rest - square_error)) * scale.hi);
  const Pair<S> whole = two_prod(a.e, two.hi);
  const Pair<S> sum = fast_two_sum(whole.hi, product.hi);
  return sum.hi + (sum.lo + (fma(a.e, two.lo, whole.lo) + product_lo));
}

}  // namespace detail

/// Natural logarithm.
template <class S>
GRAPNEL_INLINE S log(S x) {
  const auto a = detail::reduce_log(x);
  return detail::log_with_edges(x, detail::log_reduced(a, a.e * detail::ln2_lo<S>()));
}

/// Logarithm in base 2; exact for powers of two.
template <class S>
GRAPNEL_INLINE S log2(S x) {
  const auto a = detail::reduce_log(x);
  if constexpr (is_f32<S>) {
    const S tail =
        poly_split(a.f, -0x1.71547p-1, 0x1.ec7094p-2, -0x1.715afep-2, 0x1.277f44p-2, -0x1.eaa24cp-3,
                   0x1.a2c9ecp-3, -0x1.87f7eep-3, 0x1.7f2756p-3, -0x1.c39904p-4);
    const S small = a.f * fma(a.f, tail, S(0x1.4ae0cp-26));
    return detail::log_with_edges(x, a.e + fma(a.f, S(0x1.715476p+0), small));
  } else {
    const Pair<S> scale{0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
    return detail::log_with_edges(x, detail::log_scaled(a, scale, Pair<S>{1.0, 0.0}));
  }
}

/// Logarithm in base 10.
template <class S>
GRAPNEL_INLINE S log10(S x) {
  const auto a = detail::reduce_log(x);
  if constexpr (is_f32<S>) {
    const S tail =
        poly_split(a.f, -0x1.bcb7aap-3, 0x1.287a7p-3, -0x1.bcbf52p-4, 0x1.63d06ep-4, -0x1.276a4ap-4,
                   0x1.f84aa8p-5, -0x1.d791e4p-5, 0x1.cd12c8p-5, -0x1.109494p-5);
    const S small = fma(a.e, S(-0x1.ec10cp-27), a.f * fma(a.f, tail, S(-0x1.5b235ep-27)));
    return detail::log_with_edges(x, fma(a.e, S(0x1.344136p-2), fma(a.f, S(0x1.bcb7b2p-2), small)));
  } else {
    const Pair<S> scale{0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57};
    const Pair<S> two{0x1.34413509f79ffp-2, -0x1.9dc1da994fd21p-59};
    return detail::log_with_edges(x, detail::log_scaled(a, scale, two));
  }
}

/// log(1 + x), accurate near zero.
template <class S>
GRAPNEL_INLINE S log1p(S x) {
  using F = detail::Format<S>;
  // 1 + x exactly, as u.hi + u.lo. Its low part counts when x is small; scaled like the rest, it
  // joins f.
  const Pair<S> u = two_sum(S(1.0), x);
  const auto d = detail::decompose(u.hi);
  // 2^(1 - e); halved, so that the largest e still has one. There u.lo is zero.
  const S unscale = from_bits((IntOf<S>::of(2 * F::bias + 1) - d.field) << F::mantissa_bits);
  const S e = detail::small_to_float(d.field, S(static_cast<double>(F::bias)));
  const Pair<S> f = fast_two_sum(d.m - 1.0, 0.5 * u.lo * unscale);
  const S y =
      detail::log_reduced(detail::ReducedLog<S>{e, f.hi}, fma(e, detail::ln2_lo<S>(), f.lo));
  const S edged = select(x < infinity<S>(), y, x);
  const S result = select(x > -1.0, edged, select(x == -1.0, -infinity<S>(), quiet_nan<S>()));
  return select(abs(x) < (is_f32<S> ? 0x1p-26 : 0x1p-54), x, result);
}

}  // namespace grapnel
