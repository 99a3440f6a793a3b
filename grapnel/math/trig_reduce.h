/// Angles brought near zero: x less the nearest multiple of pi or pi/2, for every finite x that is
/// not negative.
///
/// The result, hi + lo, has an error far below one ulp of hi even where x all but hits a multiple.
/// Two ways lead there. Up to `common_reach` three constants that add up to pi are enough. Beyond
/// it x is multiplied with the digits of 1/pi that matter at its exponent, so that the fraction of
/// x / pi comes out directly. Scalar code has no branches, so `Reach::full` computes both and
/// selects.
///
/// Note [Reach]: for |x| < common_reach, Reach::common and Reach::full give the same bits. A kernel
/// that finds a whole block `in_common_reach` may therefore run the cheaper one.
#pragma once

#include "grapnel/math/poly.h"
#include "grapnel/math/scalar.h"
#include "grapnel/math/trig_table.h"

namespace grapnel {

/// How far from zero an argument may be; see Note [Reach].
enum class Reach { common, full };

template <class S>
inline constexpr double common_reach = is_f32<S> ? 0x1p15 : 0x1p30;

template <class S>
GRAPNEL_INLINE auto in_common_reach(S x) {
  return abs(x) < S(common_reach<S>);
}

namespace detail {

/// Which multiples of pi may be subtracted: n, n - 1/2 or n / 2 for whole n.
enum class Grid { whole, half_odd, half };

/// hi + lo, which is x less the nearest multiple of pi, and that multiple's n in the low bits of
/// `index`. Flat, and without a mask, because compilers keep nested structs and stored masks in
/// memory, not in registers.
template <class S>
struct Reduced {
  S hi, lo;
  IntOf<S> index;
};

/// The multiple nearest to p = x / pi, and n in the low bits of `index`.
template <class S>
struct Multiple {
  S value;
  IntOf<S> index;
};
template <Grid grid, class S>
GRAPNEL_INLINE Multiple<S> nearest_multiple(S p) {
  // Adding 1.5 * 2^(digits - 1) leaves the nearest whole number in the low bits of the sum.
  const S shift = S(is_f32<S> ? 0x1.8p23 : 0x1.8p52);
  const S n = (grid == Grid::half ? p + p : grid == Grid::half_odd ? p + 0.5 : p) + shift;
  const S whole = n - shift;
  return {grid == Grid::half ? whole * 0.5 : grid == Grid::half_odd ? whole - 0.5 : whole, bits(n)};
}

/// The lowest bit of the index, moved to where y has its sign: y changes sign where n is odd.
template <class S>
GRAPNEL_INLINE S flip_if_odd(S y, IntOf<S> index) {
  return from_bits(bits(y) ^ (index << (is_f32<S> ? 31 : 63)));
}

/// All ones where x < common_reach and zero elsewhere, NaN included, for x that is not negative.
/// Not a mask for select: g++ would move the table lookups behind its branch, and then cannot make
/// vector code of them.
template <class S>
GRAPNEL_INLINE IntOf<S> is_near(S x) {
  return (bits(x) - bits(S(common_reach<S>))) >> (is_f32<S> ? 31 : 63);
}

/// a where `ones`, b where it is zero.
template <class S>
GRAPNEL_INLINE S blend(IntOf<S> ones, S a, S b) {
  return from_bits(bits(b) ^ ((bits(a) ^ bits(b)) & ones));
}

/// For x < common_reach.
template <Grid grid, class S>
GRAPNEL_INLINE Reduced<S> reduce_common(S x) {
  // pi = head + middle + tail
  const S head = S(is_f32<S> ? 0x1.921fb6p+1 : 0x1.921fb54442d18p+1);
  const S middle = S(is_f32<S> ? -0x1.777a5cp-24 : 0x1.1a62633145c07p-53);
  const S tail = S(is_f32<S> ? -0x1.ee59dap-49 : -0x1.f1976b7ed8fbcp-109);
  const auto [q, n] = nearest_multiple<grid>(x * S(0x1.45f306dc9c883p-2));
  // Exact: both are multiples of the same small power of two, and the difference is small. Only x
  // much smaller than pi/2, less pi/2, does not fit; what is lost then is exactly x - (first + q
  // head).
  const S first = fma(-q, head, x);
  S lost = S(0.0);
  if constexpr (grid == Grid::half_odd) lost = x - fma(q, head, first);
  // fast_two_sum although `first` may be smaller: it is a multiple of the last bit of the product,
  // which suffices.
  const auto [product, rest] = two_prod(q, middle);
  const S hi = first - product;
  const S lo = ((first - hi) - product) - rest;
  return {hi, fma(-q, tail, grid == Grid::half_odd ? lo + lost : lo), n};
}

/// For x >= common_reach, f32: in double arithmetic.
template <Grid grid, class S>
  requires is_f32<S>
GRAPNEL_INLINE Reduced<S> reduce_far(S x) {
  using D = decltype(widen(x));
  // 1/pi, less those leading digits which only add multiples of 2 to the product at the exponents
  // in question.
  D hi = D(0x1.45f306dc9c883p-2), lo = D(-0x1.6b01ec5417056p-56);
  const auto from = [&](double least, double digits, double more) {
    const auto mask = x >= S(least);
    hi = select(mask, D(digits), hi);
    lo = select(mask, D(more), lo);
  };
  from(0x1p44, 0x1.b727220a94fe1p-24, 0x1.d5f47d4d37703p-79);
  from(0x1p65, 0x1.1054a7f09d5f4p-43, 0x1.f534ddc0db629p-97);
  from(0x1p86, 0x1.fc2757d1f534ep-65, -0x1.1f924eb53361ep-120);
  from(0x1p107, 0x1.7d1f534ddc0dbp-85, 0x1.8a5664f10e410p-139);
  const D wide = widen(x);
  const auto [p, rest] = two_prod(wide, hi);
  const auto [q, n] = nearest_multiple<grid>(p);
  const D angle = ((p - q) + fma(wide, lo, rest)) * D(0x1.921fb54442d18p+1);
  const S head = narrow(angle);
  return {head, narrow(angle - widen(head)), narrow(n)};
}

/// For x >= common_reach, f64: with the digits of 1/pi from a table.
template <Grid grid, class S>
  requires is_f64<S>
GRAPNEL_INLINE Reduced<S> reduce_far(S x) {
  using I = IntOf<S>;
  // The row is the upper part of the exponent. What remains of x, its last three exponent bits and
  // its digits, is read as a number from 2^49 to 2^57.
  const I pattern = bits(x);
  const I row =
      (shift_right_logical(pattern, 55) - I(one_over_pi_first_row)) & (is_near(x) ^ I(-1.0));
  const S y = from_bits((pattern & I::of((int64_t{1} << 55) - 1)) | I::of(int64_t{134} << 55));

  const auto [p0, e0] = two_prod(y, lookup(one_over_pi[0], row));  // up to 2^60, up to 2^7
  const auto [p1, e1] = two_prod(y, lookup(one_over_pi[1], row));  // up to 2^7, 2^-46
  const auto [p2, e2] = two_prod(y, lookup(one_over_pi[2], row));  // up to 2^-46, 2^-99
  const S p3 = y * lookup(one_over_pi[3], row) + (x - x);          // up to 2^-99; NaN for infinity
  // Multiples of 512 leave p0 first: they are even, and without them n fits its bits.
  const S shift = S(0x1.8p61);
  const S small = p0 - ((p0 + shift) - shift);
  // The remaining sum may cancel down to 2^-62, so every rounding error above 2^-99 is kept.
  const auto [s1, c1] = two_sum(small, e0);
  const auto [s2, c2] = two_sum(s1, p1);
  const auto [q, n] = nearest_multiple<grid>(s2);
  const auto [s3, c3] = two_sum(s2, -q);
  const auto [t1, d1] = two_sum(c1, c2);
  const auto [t2, d2] = two_sum(e1, p2);
  const auto [t3, d3] = two_sum(t1, t2);
  const auto [t4, d4] = two_sum(t3, c3);
  const auto [hi, d5] = two_sum(s3, t4);
  const S lo = d5 + (((d1 + d2) + (d3 + d4)) + (e2 + p3));

  const auto [angle, rest] = two_prod(hi, S(0x1.921fb54442d18p+1));
  return {angle, fma(lo, S(0x1.921fb54442d18p+1), fma(hi, S(0x1.1a62633145c07p-53), rest)), n};
}

template <Reach reach, Grid grid, class S>
GRAPNEL_INLINE Reduced<S> reduce(S x) {
  if constexpr (reach == Reach::common) {
    return reduce_common<grid>(x);
  } else {
    const Reduced<S> a = reduce_common<grid>(x);
    const Reduced<S> b = reduce_far<grid>(x);
    const IntOf<S> near = is_near(x);
    return {blend(near, a.hi, b.hi), blend(near, a.lo, b.lo),
            b.index ^ ((a.index ^ b.index) & near)};
  }
}

}  // namespace detail
}  // namespace grapnel
