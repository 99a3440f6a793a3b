/// Elementary functions as ops: exponentials, logarithms, roots, trigonometry, error function.
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/math/math.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// Integers are converted to the default floating type first.
struct Elementary : Pointwise<1> {
  static constexpr TypeRule type_rule = TypeRule::floating;
};
struct KeepsInput : Elementary {
  static constexpr SaveMask saves[] = {input(0)};
};
struct KeepsOutput : Elementary {
  static constexpr SaveMask saves[] = {output()};
};

// One line per function: the definition, its text name, what it keeps (as x or y), its formula, its
// gradient, its samples.
#define GRAPNEL_OF_INPUT(Def, fn, derivative, ...)                    \
  struct Def : KeepsInput {                                           \
    static constexpr std::string_view name = #fn;                     \
    template <class S>                                                \
    static S scalar(S x) {                                            \
      return fn(x);                                                   \
    }                                                                 \
    static Grads grad(const Saved& s, const Tensor& g) {              \
      const Tensor x = s.input(0);                                    \
      return {derivative};                                            \
    }                                                                 \
    static Samples samples() { return sample_values({__VA_ARGS__}); } \
  };
#define GRAPNEL_OF_OUTPUT(Def, fn, derivative, ...)                   \
  struct Def : KeepsOutput {                                          \
    static constexpr std::string_view name = #fn;                     \
    template <class S>                                                \
    static S scalar(S x) {                                            \
      return fn(x);                                                   \
    }                                                                 \
    static Grads grad(const Saved& s, const Tensor& g) {              \
      const Tensor y = s.output();                                    \
      return {derivative};                                            \
    }                                                                 \
    static Samples samples() { return sample_values({__VA_ARGS__}); } \
  };

inline constexpr double kLn2 = 0.693147180559945309417232121458;
inline constexpr double kLn10 = 2.30258509299404568401799145468;
inline constexpr double kTwoOverSqrtPi = 1.12837916709551257389615890312;

GRAPNEL_OF_OUTPUT(Sqrt, sqrt, g / (y * 2.0), 0.25, 1.0, 7.5)
GRAPNEL_OF_OUTPUT(Exp, exp, g* y, -3.0, 0.0, 0.5, 2.0)
GRAPNEL_OF_OUTPUT(Exp2, exp2, g* y* kLn2, -3.0, 0.0, 0.5, 2.0)
GRAPNEL_OF_OUTPUT(Expm1, expm1, g*(y + 1.0), -3.0, 0.0, 1e-3, 2.0)
GRAPNEL_OF_INPUT(Log, log, g / x, 0.1, 1.0, 7.5)
GRAPNEL_OF_INPUT(Log1p, log1p, g / (x + 1.0), -0.5, 1e-3, 7.5)
GRAPNEL_OF_INPUT(Log2, log2, g / (x * kLn2), 0.1, 1.0, 7.5)
GRAPNEL_OF_INPUT(Log10, log10, g / (x * kLn10), 0.1, 1.0, 7.5)
GRAPNEL_OF_INPUT(SinOfAny, sin, g* cos(x), -3.0, 0.0, 1.2)
GRAPNEL_OF_INPUT(CosOfAny, cos, -g* sin(x), -3.0, 0.0, 1.2)
GRAPNEL_OF_OUTPUT(TanOfAny, tan, g*(y* y + 1.0), -1.0, 0.0, 1.2)
GRAPNEL_OF_INPUT(Asin, asin, g* rsqrt(1.0 - x * x), -0.8, 0.0, 0.6)
GRAPNEL_OF_INPUT(Acos, acos, -g* rsqrt(1.0 - x * x), -0.8, 0.0, 0.6)
GRAPNEL_OF_INPUT(Atan, atan, g / (x * x + 1.0), -3.0, 0.0, 0.6)
GRAPNEL_OF_INPUT(Sinh, sinh, g* cosh(x), -3.0, 0.0, 1.5)
GRAPNEL_OF_INPUT(Cosh, cosh, g* sinh(x), -3.0, 0.0, 1.5)
GRAPNEL_OF_OUTPUT(Tanh, tanh, g * (1.0 - y * y), -3.0, 0.0, 1.5)
GRAPNEL_OF_INPUT(Erf, erf, g*(exp(-(x* x)) * kTwoOverSqrtPi), -2.0, 0.0, 0.7)
GRAPNEL_OF_INPUT(Erfc, erfc, g*(exp(-(x* x)) * -kTwoOverSqrtPi), -2.0, 0.0, 0.7)

#undef GRAPNEL_OF_INPUT
#undef GRAPNEL_OF_OUTPUT

// Reducing a huge angle is most of the work, and hardly anybody has one.
#define GRAPNEL_WITH_USUAL_ANGLES(Def, fn) \
  struct Def : Def##OfAny {                \
    template <class S>                     \
    static bool usual(S x) {               \
      return in_common_reach(x);           \
    }                                      \
    template <class S>                     \
    static S usual_scalar(S x) {           \
      return fn<Reach::common>(x);         \
    }                                      \
  };
GRAPNEL_WITH_USUAL_ANGLES(Sin, sin)
GRAPNEL_WITH_USUAL_ANGLES(Cos, cos)
GRAPNEL_WITH_USUAL_ANGLES(Tan, tan)
#undef GRAPNEL_WITH_USUAL_ANGLES

/// 1 / sqrt(x)
struct Rsqrt : KeepsOutput {
  static constexpr std::string_view name = "rsqrt";
  template <class S>
  static S scalar(S x) {
    return S(1.0) / sqrt(x);
  }
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor y = s.output();
    return {g * (y * y * y * -0.5)};
  }
  static Samples samples() { return sample_values({0.25, 1.0, 7.5}); }
};

/// The angle of the point (x, y), written atan2(y, x).
struct Atan2 : Pointwise<2> {
  static constexpr std::string_view name = "atan2";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S y, S x) {
    return atan2(y, x);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor y = s.input(0), x = s.input(1);
    // No angle at the origin, and no gradient.
    const Tensor square = x * x + y * y, scaled = g / where(square == 0, 1.0, square);
    return {s.needs(0) ? scaled * x : Tensor(), s.needs(1) ? -scaled * y : Tensor()};
  }
  static Samples samples() { return sample_pairs({-1.5, 0.25, 3.0}, {2.0, -0.5, 0.125}); }
};

}  // namespace grapnel
