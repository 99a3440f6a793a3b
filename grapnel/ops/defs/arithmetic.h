/// Arithmetic: + - * / powers, remainders, minimum and maximum, rounding.
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/math/math.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/define.h"

namespace grapnel {

struct Add : Pointwise<2> {
  static constexpr std::string_view name = "add";
  template <class S>
  static S scalar(S a, S b) {
    return a + b;
  }
  static Grads grad(const Saved&, const Tensor& g) { return {g, g}; }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.125}); }
};

struct Sub : Pointwise<2> {
  static constexpr std::string_view name = "sub";
  static void check_types(Inputs in) {
    refuse_bool(name, in, "Use logical_xor to find where masks differ, logical_not to invert one.");
  }
  template <class S>
  static S scalar(S a, S b) {
    return a - b;
  }
  static Grads grad(const Saved& s, const Tensor& g) { return {g, s.needs(1) ? -g : Tensor()}; }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.125}); }
};

/// a + alpha * b, rounded twice like the two ops it stands for.
struct AddScaled : Pointwise<3> {
  static constexpr std::string_view name = "add_scaled";
  template <class S>
  static S scalar(S a, S b, S alpha) {
    return a + alpha * b;
  }
  static constexpr SaveMask saves[] = {0, input(2), input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {g, s.needs(1) ? g * s.input(2) : Tensor(), s.needs(2) ? g * s.input(1) : Tensor()};
  }
  static Samples samples() {
    return {
        {{sample_tensor({2, 3}), sample_tensor({2, 3}, -1, 3), sample_tensor({}, 0.5, 0.75)}, {}}};
  }
};

struct Mul : Pointwise<2> {
  static constexpr std::string_view name = "mul";
  template <class S>
  static S scalar(S a, S b) {
    return a * b;
  }
  static constexpr SaveMask saves[] = {input(1), input(0)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {s.needs(0) ? g * s.input(1) : Tensor(), s.needs(1) ? g * s.input(0) : Tensor()};
  }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.125}); }
};

/// True division: integers give floating-point results. The numerator is saved, not the quotient, so
/// that the result may be changed in place.
struct Div : Pointwise<2> {
  static constexpr std::string_view name = "div";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S a, S b) {
    return a / b;
  }
  static constexpr SaveMask saves[] = {input(1), input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor b = s.input(1);
    return {s.needs(0) ? g / b : Tensor(), s.needs(1) ? -g * (s.input(0) / b) / b : Tensor()};
  }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.75}); }
};

struct FloorDivide : Pointwise<2> {
  static constexpr std::string_view name = "floor_divide";
  static constexpr Refused refused = Refused::floor_divide_by_zero;
  template <class S>
  static S scalar(S a, S b) {
    if constexpr (is_int<S>) {
      const S q = a / b;
      return select((q * b != a) & ((a < 0.0) != (b < 0.0)), q - 1.0, q);
    } else {
      // The quotient of the exact remainder, so that a = q * b + r holds with 0 <= r/b < 1.
      const S r = fmod(a, b);
      S q = (a - r) / b;
      q = select((r != 0.0) & ((r < 0.0) != (b < 0.0)), q - 1.0, q);
      const S f = floor(q);
      const S rounded = select(q - f > 0.5, f + 1.0, f);
      return select(b == 0.0, a / b, select(q == 0.0, copysign(S(0.0), a / b), rounded));
    }
  }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.75}); }
};

/// What is left of a after taking out whole multiples of b; the sign is a's.
struct Fmod : Pointwise<2> {
  static constexpr std::string_view name = "fmod";
  static constexpr Refused refused = Refused::fmod_by_zero;
  template <class S>
  static S scalar(S a, S b) {
    if constexpr (is_int<S>) return a - (a / b) * b;
    else return fmod(a, b);
  }
  static constexpr SaveMask saves[] = {0, input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {g, s.needs(1) ? -g * trunc((s.input(0) / s.input(1)).detach()) : Tensor()};
  }
  static Samples samples() { return sample_pairs({-1.3, 0.25, 3.1}, {1.0, -0.2, 0.75}); }
};

/// What is left of a after taking out whole multiples of b; the sign is b's.
struct Remainder : Pointwise<2> {
  static constexpr std::string_view name = "remainder";
  static constexpr Refused refused = Refused::remainder_by_zero;
  template <class S>
  static S scalar(S a, S b) {
    S r;
    if constexpr (is_int<S>) r = a - (a / b) * b;
    else r = fmod(a, b);
    return select((r != 0.0) & ((r < 0.0) != (b < 0.0)), r + b, r);
  }
  static constexpr SaveMask saves[] = {0, input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {g, s.needs(1) ? -g * floor_divide(s.input(0), s.input(1)).detach() : Tensor()};
  }
  static Samples samples() { return sample_pairs({-1.3, 0.25, 3.1}, {1.0, -0.2, 0.75}); }
};

struct Pow : Pointwise<2> {
  static constexpr std::string_view name = "pow";
  static constexpr Refused refused = Refused::negative_exponent;
  template <class S>
  static S scalar(S a, S b) {
    if constexpr (is_int<S>) {
      // Square and multiply over all bits of the exponent; negative exponents are refused before.
      S result = 1.0;
      for (int bit = 0; bit < 63; ++bit) {
        const S on = shift_right_logical(b, bit) & S(1.0);
        result = select(on != 0.0, result * a, result);
        a = a * a;
      }
      return result;
    } else {
      return pow(a, b);
    }
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), input(0) | input(1) | output()};
  static Grads grad(const Saved& s, const Tensor& g) {
    Tensor ga, gb;
    if (s.needs(0)) {
      const Tensor a = s.input(0), b = s.input(1);
      // x^0 is flat, also at x = 0, where b * x^(b-1) would be 0 * inf. A power again, not a
      // square: derivatives of every order exist.
      ga = g * where(b == 0, 0.0, b * apply<Pow>(a, b - 1));
    }
    if (s.needs(1)) {
      // 0^b is flat for b >= 0, where log(0) * 0^b would be -inf * 0; below it falls without bound.
      const Tensor a = s.input(0), y = s.output(), flat = logical_and(a == 0, s.input(1) >= 0);
      gb = g * where(flat, 0.0, y * log(where(flat, 1.0, a)));
    }
    return {ga, gb};
  }
  static Samples samples() { return sample_pairs({1.5, 0.25, 3.0}, {2.0, -0.5, 3.0}); }
};

/// NaN wins, as in PyTorch. Where both are equal each gets half of the gradient.
struct Minimum : Pointwise<2> {
  static constexpr std::string_view name = "minimum";
  template <class S>
  static S scalar(S a, S b) {
    return select((a < b) | (a != a), a, b);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return extremum_grads(s, g, s.input(0) < s.input(1));
  }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.125}); }
  static Grads extremum_grads(const Saved& s, const Tensor& g, const Tensor& first_wins) {
    const Tensor tie = s.input(0) == s.input(1);
    const Tensor shared = where(tie, g * 0.5, g);
    return {s.needs(0) ? where(first_wins | tie, shared, 0.0) : Tensor(),
            s.needs(1) ? where(first_wins, 0.0, shared) : Tensor()};
  }
};

struct Maximum : Pointwise<2> {
  static constexpr std::string_view name = "maximum";
  template <class S>
  static S scalar(S a, S b) {
    return select((a > b) | (a != a), a, b);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return Minimum::extremum_grads(s, g, s.input(0) > s.input(1));
  }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.125}); }
};

struct Neg : Pointwise<1> {
  static constexpr std::string_view name = "neg";
  static constexpr Twice twice = Twice::undoes;
  static void check_types(Inputs in) { refuse_bool(name, in, "To invert a mask use logical_not."); }
  template <class S>
  static S scalar(S x) {
    return -x;
  }
  static Grads grad(const Saved&, const Tensor& g) { return {-g}; }
  static Samples samples() { return sample_values({-1.5, 0.0, 2.0}); }
};

struct Abs : Pointwise<1> {
  static constexpr std::string_view name = "abs";
  static constexpr Twice twice = Twice::nothing;
  template <class S>
  static S scalar(S x) {
    return abs(x);
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g) { return {g * sign(s.input(0))}; }
  static Samples samples() { return sample_values({-1.5, 0.5, 2.0}); }
};

struct Sign : Pointwise<1> {
  static constexpr std::string_view name = "sign";
  static constexpr Twice twice = Twice::nothing;
  template <class S>
  static S scalar(S x) {
    return select(x > 0.0, S(1.0), select(x < 0.0, S(-1.0), select(x == 0.0, S(0.0), x)));
  }
  static Grads grad(const Saved&, const Tensor& g) { return {g * 0.0}; }
  static Samples samples() { return sample_values({-1.5, 0.5, 2.0}); }
};

struct Square : Pointwise<1> {
  static constexpr std::string_view name = "square";
  template <class S>
  static S scalar(S x) {
    return x * x;
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g) { return {g * s.input(0) * 2.0}; }
  static Samples samples() { return sample_values({-1.5, 0.0, 2.0}); }
};

struct Reciprocal : Pointwise<1> {
  static constexpr std::string_view name = "reciprocal";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x) {
    return S(1.0) / x;
  }
  static constexpr SaveMask saves[] = {output()};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor y = s.output();
    return {-g * y * y};
  }
  static Samples samples() { return sample_values({-1.5, 0.5, 2.0}); }
};

/// Rounding is flat almost everywhere; its gradient is zero.
template <class Self>
struct Rounding : Pointwise<1> {
  static Grads grad(const Saved&, const Tensor& g) { return {g * 0.0}; }
  static Samples samples() { return sample_values({-1.7, -0.2, 0.3, 2.6}); }
};
struct Floor : Rounding<Floor> {
  static constexpr std::string_view name = "floor";
  static constexpr Twice twice = Twice::nothing;
  template <class S>
  static S scalar(S x) {
    return floor(x);
  }
};
struct Ceil : Rounding<Ceil> {
  static constexpr std::string_view name = "ceil";
  static constexpr Twice twice = Twice::nothing;
  template <class S>
  static S scalar(S x) {
    return ceil(x);
  }
};
/// Halves go to the even neighbour.
struct Round : Rounding<Round> {
  static constexpr std::string_view name = "round";
  template <class S>
  static S scalar(S x) {
    return round_even(x);
  }
};
struct Trunc : Rounding<Trunc> {
  static constexpr std::string_view name = "trunc";
  template <class S>
  static S scalar(S x) {
    return trunc(x);
  }
};

/// start + weight * (end - start)
struct Lerp : Pointwise<3> {
  static constexpr std::string_view name = "lerp";
  static constexpr TypeRule type_rule = TypeRule::floating;
  // From the nearer end, so that weight 1 gives `end` exactly.
  template <class S>
  static S scalar(S a, S b, S w) {
    return select(abs(w) < 0.5, a + w * (b - a), b - (b - a) * (S(1.0) - w));
  }
  static constexpr SaveMask saves[] = {input(2), input(2), input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {s.needs(0) ? g * (1.0 - s.input(2)) : Tensor(), s.needs(1) ? g * s.input(2) : Tensor(),
            s.needs(2) ? g * (s.input(1) - s.input(0)) : Tensor()};
  }
  static Samples samples() {
    return {{{sample_tensor({2, 3}), sample_tensor({2, 3}, 1, 4), sample_tensor({2, 3}, 0.1, 0.9)},
             {}}};
  }
};

/// x + value * a * b
struct Addcmul : Pointwise<4> {
  static constexpr std::string_view name = "addcmul";
  template <class S>
  static S scalar(S x, S a, S b, S value) {
    return x + value * a * b;
  }
  static constexpr SaveMask saves[] = {0, input(2) | input(3), input(1) | input(3),
                                       input(1) | input(2)};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {g, s.needs(1) ? g * s.input(3) * s.input(2) : Tensor(),
            s.needs(2) ? g * s.input(3) * s.input(1) : Tensor(),
            s.needs(3) ? g * s.input(1) * s.input(2) : Tensor()};
  }
  static Samples samples() {
    return {{{sample_tensor({2, 3}), sample_tensor({3}), sample_tensor({2, 1}),
              sample_tensor({}, 0.5, 0.75)},
             {}}};
  }
};

/// x + value * a / b
struct Addcdiv : Pointwise<4> {
  static constexpr std::string_view name = "addcdiv";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x, S a, S b, S value) {
    return x + value * a / b;
  }
  static constexpr SaveMask saves[] = {0, input(2) | input(3), input(1) | input(2) | input(3),
                                       input(1) | input(2)};
  static Grads grad(const Saved& s, const Tensor& g) {
    Tensor ga, gb, gv;
    if (s.needs(1)) ga = g * s.input(3) / s.input(2);
    if (s.needs(2)) {
      const Tensor b = s.input(2);
      gb = -g * s.input(3) * s.input(1) / (b * b);
    }
    if (s.needs(3)) gv = g * s.input(1) / s.input(2);
    return {g, ga, gb, gv};
  }
  static Samples samples() {
    return {{{sample_tensor({2, 3}), sample_tensor({3}), sample_tensor({2, 1}, 1, 2),
              sample_tensor({}, 0.5, 0.75)},
             {}}};
  }
};

}  // namespace grapnel
