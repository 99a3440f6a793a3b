/// Comparisons, logic, selection and clamping.
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/define.h"

namespace grapnel {

struct Comparison : Pointwise<2> {
  static constexpr TypeRule type_rule = TypeRule::compare;
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, 0.25, 0.125}); }
};
#define GRAPNEL_COMPARISON(Def, text, expression)  \
  struct Def : Comparison {                        \
    static constexpr std::string_view name = text; \
    template <class S>                             \
    static S scalar(S a, S b) {                    \
      return select(expression, S(1.0), S(0.0));   \
    }                                              \
  };
GRAPNEL_COMPARISON(Eq, "eq", a == b)
GRAPNEL_COMPARISON(Ne, "ne", a != b)
GRAPNEL_COMPARISON(Lt, "lt", a < b)
GRAPNEL_COMPARISON(Le, "le", a <= b)
GRAPNEL_COMPARISON(Gt, "gt", a > b)
GRAPNEL_COMPARISON(Ge, "ge", a >= b)
GRAPNEL_COMPARISON(LogicalAnd, "logical_and", (a != 0.0) & (b != 0.0))
GRAPNEL_COMPARISON(LogicalOr, "logical_or", (a != 0.0) | (b != 0.0))
GRAPNEL_COMPARISON(LogicalXor, "logical_xor", (a != 0.0) != (b != 0.0))
#undef GRAPNEL_COMPARISON

struct Test : Pointwise<1> {
  static constexpr TypeRule type_rule = TypeRule::test;
  static Samples samples() { return sample_values({-1.5, 0.0, 3.0}); }
};
#define GRAPNEL_TEST(Def, text, expression)        \
  struct Def : Test {                              \
    static constexpr std::string_view name = text; \
    template <class S>                             \
    static S scalar(S x) {                         \
      return select(expression, S(1.0), S(0.0));   \
    }                                              \
  };
// x - x is 0 for finite numbers and NaN for the others.
GRAPNEL_TEST(IsNan, "isnan", x != x)
GRAPNEL_TEST(IsInf, "isinf", (x == x) & (x - x != x - x))
GRAPNEL_TEST(IsFinite, "isfinite", x - x == x - x)
#undef GRAPNEL_TEST

struct LogicalNot : Test {
  static constexpr std::string_view name = "logical_not";
  static constexpr Twice twice = Twice::undoes;
  template <class S>
  static S scalar(S x) {
    return select(x == 0.0, S(1.0), S(0.0));
  }
};

/// Bit by bit, on integers and bools.
#define GRAPNEL_BITWISE(Def, text, symbol)                                                        \
  struct Def : Pointwise<2> {                                                                     \
    static constexpr std::string_view name = text;                                                \
    static void check_types(Inputs in) { refuse_floats(name, in); }                               \
    template <class S>                                                                            \
    static S scalar(S a, S b) {                                                                   \
      if constexpr (is_int<S>) return a symbol b;                                                 \
      else return quiet_nan<S>(); /* refused for floating-point types before */                   \
    }                                                                                             \
    static Samples samples() {                                                                    \
      return {                                                                                    \
          {{sample_tensor({2, 3}, 0, 99).to(kInt64), sample_tensor({3}, 0, 99).to(kInt64)}, {}}}; \
    }                                                                                             \
  };
GRAPNEL_BITWISE(BitwiseAnd, "bitwise_and", &)
GRAPNEL_BITWISE(BitwiseOr, "bitwise_or", |)
GRAPNEL_BITWISE(BitwiseXor, "bitwise_xor", ^)
#undef GRAPNEL_BITWISE

/// b where the condition holds, c elsewhere.
struct Where : Pointwise<3> {
  static constexpr std::string_view name = "where";
  static void check_types(Inputs in) { check_mask(name, *in[0]); }
  static constexpr TypeRule type_rule = TypeRule::select;
  template <class S>
  static S scalar(S condition, S a, S b) {
    return select(condition != 0.0, a, b);
  }
  static constexpr SaveMask saves[] = {0, input(0), input(0)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {Tensor(), s.needs(1) ? where(s.input(0), g, 0.0) : Tensor(),
            s.needs(2) ? where(s.input(0), 0.0, g) : Tensor()};
  }
  static Samples samples() {
    return {{{sample_tensor({2, 3}) > 0, sample_tensor({2, 3}), sample_tensor({3}, 1, 2)}, {}}};
  }
};

/// x, but the value where the mask holds.
struct MaskedFill : Pointwise<3> {
  static constexpr std::string_view name = "masked_fill";
  static void check_types(Inputs in) { check_mask(name, *in[1]); }
  static constexpr TypeRule type_rule = TypeRule::fill;
  template <class S>
  static S scalar(S x, S mask, S value) {
    return select(mask != 0.0, value, x);
  }
  static constexpr SaveMask saves[] = {input(1), 0, input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {s.needs(0) ? where(s.input(1), 0.0, g) : Tensor(), Tensor(),
            s.needs(2) ? where(s.input(1), g, 0.0) : Tensor()};
  }
  static Samples samples() {
    return {{{sample_tensor({2, 3}), sample_tensor({2, 3}) > 0, sample_tensor({}, 1, 2)}, {}}};
  }
};

/// Clamping lets the gradient through where the value was not changed, the bounds included. NaN
/// stays.
struct Clamp : Pointwise<3> {
  static constexpr std::string_view name = "clamp";
  template <class S>
  static S scalar(S x, S low, S high) {
    const S raised = select(x < low, low, x);
    return select(raised > high, high, raised);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1) | input(2), 0, 0};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor x = s.input(0);
    return {where((x >= s.input(1)) & (x <= s.input(2)), g, 0.0)};
  }
  static Samples samples() {
    return {{{sample_tensor({3, 3}), wrap_number(-0.9), wrap_number(0.8)}, {}}};
  }
};
struct ClampMin : Pointwise<2> {
  static constexpr std::string_view name = "clamp_min";
  template <class S>
  static S scalar(S x, S low) {
    return select(x < low, low, x);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {where(s.input(0) >= s.input(1), g, 0.0)};
  }
  static Samples samples() { return {{{sample_tensor({3, 3}), wrap_number(-0.9)}, {}}}; }
};
struct ClampMax : Pointwise<2> {
  static constexpr std::string_view name = "clamp_max";
  template <class S>
  static S scalar(S x, S high) {
    return select(x > high, high, x);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {where(s.input(0) <= s.input(1), g, 0.0)};
  }
  static Samples samples() { return {{{sample_tensor({3, 3}), wrap_number(0.8)}, {}}}; }
};

}  // namespace grapnel
