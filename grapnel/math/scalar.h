/// What arithmetic means: the one scalar vocabulary that every pointwise formula is written in.
///
/// The numerical promise. A formula over `S` gives the same bits wherever it runs: in the eager
/// kernels
/// (`S = Num<float, Isa>`, compiled once per instruction set), in generated code (`S` emits
/// instructions) and on other devices. It holds because only exactly specified operations exist
/// here (+ - * / sqrt, an explicit fma, compare, select, integer and bit operations) and because
/// kernels are built with
/// `-ffp-contract=off`. NaNs are equal up to their payload.
///
/// A formula may use: + - * / and unary -, comparisons (they give a mask; combine masks with & |
/// !), select, fma, sqrt, abs, floor, ceil, trunc, round_even, bits / from_bits, to_int / to_float,
/// widen / narrow, copysign, lookup in a constant table, and integer + - * & | ^ << >> on
/// `IntOf<S>`. Literals are doubles and are rounded to the type of the other operand, so `1.0 + e`
/// never silently becomes double arithmetic.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#define GRAPNEL_INLINE __attribute__((always_inline)) inline

namespace grapnel {

/// Tags for the instruction sets kernels are compiled for. The tag is part of every kernel's type,
/// so code built with wide instructions can never be merged by the linker with code meant for an
/// older processor.
struct IsaBaseline {};
struct IsaAvx2 {};
struct IsaAvx512 {};

template <class T, class Isa>
struct Num {
  using value_type = T;
  using isa = Isa;
  T v;

  Num() = default;
  GRAPNEL_INLINE constexpr Num(double literal) : v(static_cast<T>(literal)) {}
  GRAPNEL_INLINE static constexpr Num of(T value) {
    Num n;
    n.v = value;
    return n;
  }

  // Signed overflow wraps: the same bits as generated code, and no undefined behaviour.
  GRAPNEL_INLINE static constexpr auto wrap(T a) {
    if constexpr (std::is_integral_v<T>) return static_cast<std::make_unsigned_t<T>>(a);
    else return a;
  }
  friend GRAPNEL_INLINE constexpr Num operator+(Num a, Num b) {
    return of(static_cast<T>(wrap(a.v) + wrap(b.v)));
  }
  friend GRAPNEL_INLINE constexpr Num operator-(Num a, Num b) {
    return of(static_cast<T>(wrap(a.v) - wrap(b.v)));
  }
  friend GRAPNEL_INLINE constexpr Num operator*(Num a, Num b) {
    return of(static_cast<T>(wrap(a.v) * wrap(b.v)));
  }
  friend GRAPNEL_INLINE constexpr Num operator/(Num a, Num b) {
    if constexpr (std::is_integral_v<T>) {
      // Truncating division; the two inputs for which the processor would trap give defined
      // results.
      const T divisor = (b.v == 0 || b.v == T(-1)) ? T(1) : b.v;
      return of(b.v == 0       ? T(0)
                : b.v == T(-1) ? static_cast<T>(wrap(T(0)) - wrap(a.v))
                               : static_cast<T>(a.v / divisor));
    } else {
      return of(a.v / b.v);
    }
  }
  friend GRAPNEL_INLINE constexpr Num operator-(Num a) {
    if constexpr (std::is_integral_v<T>) return of(static_cast<T>(wrap(T(0)) - wrap(a.v)));
    else return of(-a.v);
  }

  friend GRAPNEL_INLINE constexpr bool operator<(Num a, Num b) { return a.v < b.v; }
  friend GRAPNEL_INLINE constexpr bool operator>(Num a, Num b) { return a.v > b.v; }
  friend GRAPNEL_INLINE constexpr bool operator<=(Num a, Num b) { return a.v <= b.v; }
  friend GRAPNEL_INLINE constexpr bool operator>=(Num a, Num b) { return a.v >= b.v; }
  friend GRAPNEL_INLINE constexpr bool operator==(Num a, Num b) { return a.v == b.v; }
  friend GRAPNEL_INLINE constexpr bool operator!=(Num a, Num b) { return a.v != b.v; }

  friend GRAPNEL_INLINE constexpr Num operator&(Num a, Num b)
    requires std::is_integral_v<T>
  {
    return of(static_cast<T>(a.v & b.v));
  }
  friend GRAPNEL_INLINE constexpr Num operator|(Num a, Num b)
    requires std::is_integral_v<T>
  {
    return of(static_cast<T>(a.v | b.v));
  }
  friend GRAPNEL_INLINE constexpr Num operator^(Num a, Num b)
    requires std::is_integral_v<T>
  {
    return of(static_cast<T>(a.v ^ b.v));
  }
  friend GRAPNEL_INLINE constexpr Num operator<<(Num a, int k)
    requires std::is_integral_v<T>
  {
    return of(static_cast<T>(wrap(a.v) << k));
  }
  /// Arithmetic shift: copies of the sign come in from the left.
  friend GRAPNEL_INLINE constexpr Num operator>>(Num a, int k)
    requires std::is_integral_v<T>
  {
    return of(static_cast<T>(a.v >> k));
  }
  friend GRAPNEL_INLINE constexpr Num shift_right_logical(Num a, int k)
    requires std::is_integral_v<T>
  {
    return of(static_cast<T>(wrap(a.v) >> k));
  }

  friend GRAPNEL_INLINE constexpr Num select(bool mask, Num a, Num b) {
    return of(mask ? a.v : b.v);
  }
};

/// For code that is no kernel: integers that overflow wrap round there, too.
template <class T>
constexpr Num<T, IsaBaseline> wrapping(T x) {
  return Num<T, IsaBaseline>::of(x);
}

/// The integer as wide as S, for work on bit patterns.
template <class S>
struct IntOfImpl;
template <class Isa>
struct IntOfImpl<Num<float, Isa>> {
  using type = Num<int32_t, Isa>;
};
template <class Isa>
struct IntOfImpl<Num<double, Isa>> {
  using type = Num<int64_t, Isa>;
};
template <class S>
using IntOf = typename IntOfImpl<S>::type;

template <class S>
inline constexpr bool is_f32 = std::is_same_v<typename S::value_type, float>;
template <class S>
inline constexpr bool is_f64 = std::is_same_v<typename S::value_type, double>;
template <class S>
inline constexpr bool is_int = std::is_integral_v<typename S::value_type>;

template <class Isa>
GRAPNEL_INLINE Num<int32_t, Isa> bits(Num<float, Isa> x) {
  return Num<int32_t, Isa>::of(std::bit_cast<int32_t>(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<int64_t, Isa> bits(Num<double, Isa> x) {
  return Num<int64_t, Isa>::of(std::bit_cast<int64_t>(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<float, Isa> from_bits(Num<int32_t, Isa> i) {
  return Num<float, Isa>::of(std::bit_cast<float>(i.v));
}
template <class Isa>
GRAPNEL_INLINE Num<double, Isa> from_bits(Num<int64_t, Isa> i) {
  return Num<double, Isa>::of(std::bit_cast<double>(i.v));
}

template <class Isa>
GRAPNEL_INLINE Num<float, Isa> fma(Num<float, Isa> a, Num<float, Isa> b, Num<float, Isa> c) {
  return Num<float, Isa>::of(__builtin_fmaf(a.v, b.v, c.v));
}
template <class Isa>
GRAPNEL_INLINE Num<double, Isa> fma(Num<double, Isa> a, Num<double, Isa> b, Num<double, Isa> c) {
  return Num<double, Isa>::of(__builtin_fma(a.v, b.v, c.v));
}
template <class Isa>
GRAPNEL_INLINE Num<float, Isa> sqrt(Num<float, Isa> x) {
  return Num<float, Isa>::of(__builtin_sqrtf(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<double, Isa> sqrt(Num<double, Isa> x) {
  return Num<double, Isa>::of(__builtin_sqrt(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<float, Isa> abs(Num<float, Isa> x) {
  return Num<float, Isa>::of(__builtin_fabsf(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<double, Isa> abs(Num<double, Isa> x) {
  return Num<double, Isa>::of(__builtin_fabs(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<int64_t, Isa> abs(Num<int64_t, Isa> x) {
  return select(x < 0.0, -x, x);
}

/// Truncating conversion; the argument must lie in the range of the integer.
template <class Isa>
GRAPNEL_INLINE Num<int32_t, Isa> to_int(Num<float, Isa> x) {
  return Num<int32_t, Isa>::of(static_cast<int32_t>(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<int64_t, Isa> to_int(Num<double, Isa> x) {
  return Num<int64_t, Isa>::of(static_cast<int64_t>(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<float, Isa> to_float(Num<int32_t, Isa> i) {
  return Num<float, Isa>::of(static_cast<float>(i.v));
}
template <class Isa>
GRAPNEL_INLINE Num<double, Isa> to_float(Num<int64_t, Isa> i) {
  return Num<double, Isa>::of(static_cast<double>(i.v));
}

template <class Isa>
GRAPNEL_INLINE Num<double, Isa> widen(Num<float, Isa> x) {
  return Num<double, Isa>::of(static_cast<double>(x.v));
}
template <class Isa>
GRAPNEL_INLINE Num<float, Isa> narrow(Num<double, Isa> x) {
  return Num<float, Isa>::of(static_cast<float>(x.v));
}
/// The low half of the integer.
template <class Isa>
GRAPNEL_INLINE Num<int32_t, Isa> narrow(Num<int64_t, Isa> i) {
  return Num<int32_t, Isa>::of(static_cast<int32_t>(i.v));
}

template <class S>
GRAPNEL_INLINE auto is_nan(S x) {
  return x != x;
}
template <class S>
GRAPNEL_INLINE S infinity() {
  return S::of(std::numeric_limits<typename S::value_type>::infinity());
}
template <class S>
GRAPNEL_INLINE S quiet_nan() {
  return S::of(std::numeric_limits<typename S::value_type>::quiet_NaN());
}

template <class S>
GRAPNEL_INLINE S sign_bit(S x) {
  using I = IntOf<S>;
  return from_bits(bits(x) & I::of(std::numeric_limits<typename I::value_type>::min()));
}
/// The magnitude of `magnitude` with the sign of `sign`.
template <class S>
GRAPNEL_INLINE S copysign(S magnitude, S sign) {
  using I = IntOf<S>;
  const I top = I::of(std::numeric_limits<typename I::value_type>::min());
  const I rest = I::of(std::numeric_limits<typename I::value_type>::max());
  return from_bits((bits(magnitude) & rest) | (bits(sign) & top));
}

/// table[index], one constant per lane; the index must lie in the table.
template <class Isa, int count>
GRAPNEL_INLINE Num<double, Isa> lookup(const double (&table)[count], Num<int64_t, Isa> index) {
  return Num<double, Isa>::of(table[index.v]);
}

namespace detail {

// For processors without an instruction for it. Adding and subtracting 2^(digits - 1) rounds to the
// nearest whole number, and from there the others are at most one away.
template <class S>
GRAPNEL_INLINE S round_by_adding(S x) {
  const S whole = S(1.0 / std::numeric_limits<typename S::value_type>::epsilon());
  const S size = abs(x);
  return copysign(select(size < whole, (size + whole) - whole, size), x);
}
template <class S>
GRAPNEL_INLINE S floor_by_adding(S x) {
  const S near = round_by_adding(x);
  return copysign(near - select(near > x, S(1.0), S(0.0)), x);
}
template <class S>
GRAPNEL_INLINE S ceil_by_adding(S x) {
  const S near = round_by_adding(x);
  return copysign(near + select(near < x, S(1.0), S(0.0)), x);
}
template <class S>
GRAPNEL_INLINE S trunc_by_adding(S x) {
  return copysign(floor_by_adding(abs(x)), x);
}

}  // namespace detail

/// Rounding to whole numbers; the sign of zero is that of the argument, and integers are whole
/// already.
#if defined(__SSE4_1__)
#define GRAPNEL_ROUNDING(name, builtin)                      \
  template <class Isa>                                       \
  GRAPNEL_INLINE Num<float, Isa> name(Num<float, Isa> x) {   \
    return Num<float, Isa>::of(builtin##f(x.v));             \
  }                                                          \
  template <class Isa>                                       \
  GRAPNEL_INLINE Num<double, Isa> name(Num<double, Isa> x) { \
    return Num<double, Isa>::of(builtin(x.v));               \
  }
GRAPNEL_ROUNDING(floor, __builtin_floor)
GRAPNEL_ROUNDING(ceil, __builtin_ceil)
GRAPNEL_ROUNDING(trunc, __builtin_trunc)
GRAPNEL_ROUNDING(round_even, __builtin_roundeven)
#undef GRAPNEL_ROUNDING
#else
template <class T, class Isa>
  requires std::is_floating_point_v<T>
GRAPNEL_INLINE Num<T, Isa> floor(Num<T, Isa> x) {
  return detail::floor_by_adding(x);
}
template <class T, class Isa>
  requires std::is_floating_point_v<T>
GRAPNEL_INLINE Num<T, Isa> ceil(Num<T, Isa> x) {
  return detail::ceil_by_adding(x);
}
template <class T, class Isa>
  requires std::is_floating_point_v<T>
GRAPNEL_INLINE Num<T, Isa> trunc(Num<T, Isa> x) {
  return detail::trunc_by_adding(x);
}
template <class T, class Isa>
  requires std::is_floating_point_v<T>
GRAPNEL_INLINE Num<T, Isa> round_even(Num<T, Isa> x) {
  return detail::round_by_adding(x);
}
#endif
template <class T, class Isa>
  requires std::is_integral_v<T>
GRAPNEL_INLINE Num<T, Isa> floor(Num<T, Isa> x) {
  return x;
}
template <class T, class Isa>
  requires std::is_integral_v<T>
GRAPNEL_INLINE Num<T, Isa> ceil(Num<T, Isa> x) {
  return x;
}
template <class T, class Isa>
  requires std::is_integral_v<T>
GRAPNEL_INLINE Num<T, Isa> trunc(Num<T, Isa> x) {
  return x;
}
template <class T, class Isa>
  requires std::is_integral_v<T>
GRAPNEL_INLINE Num<T, Isa> round_even(Num<T, Isa> x) {
  return x;
}

/// The remainder of truncating division, exact for all numbers and therefore the same everywhere.
template <class Isa>
GRAPNEL_INLINE Num<float, Isa> fmod(Num<float, Isa> a, Num<float, Isa> b) {
  return Num<float, Isa>::of(__builtin_fmodf(a.v, b.v));
}
template <class Isa>
GRAPNEL_INLINE Num<double, Isa> fmod(Num<double, Isa> a, Num<double, Isa> b) {
  return Num<double, Isa>::of(__builtin_fmod(a.v, b.v));
}

}  // namespace grapnel
