/// Activation functions.
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/math/math.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// g where y > 0, else 0: the gradient of relu, one pass over memory.
Tensor relu_backward(const Tensor& g, const Tensor& y);

/// max(x, 0); NaN stays.
struct Relu : Pointwise<1> {
  static constexpr std::string_view name = "relu";
  static constexpr Twice twice = Twice::nothing;
  template <class S>
  static S scalar(S x) {
    return select(x < 0.0, S(0.0), x);
  }
  static constexpr SaveMask saves[] = {output()};
  static Grads grad(const Saved& s, const Tensor& g) { return {relu_backward(g, s.output())}; }
  static Samples samples() { return sample_values({-1.5, -0.1, 0.5, 2.0}); }
};

struct ReluBackward : Pointwise<2> {
  static constexpr std::string_view name = "relu_backward";
  template <class S>
  static S scalar(S g, S y) {
    return select(y > 0.0, g, S(0.0));
  }
  static constexpr SaveMask saves[] = {input(1), 0};
  // Flat in y almost everywhere.
  static Grads grad(const Saved& s, const Tensor& g) {
    return {s.needs(0) ? relu_backward(g, s.input(1)) : Tensor(), Tensor()};
  }
  static Samples samples() { return {{{sample_tensor({2, 3}), sample_tensor({2, 3}, -1, 3)}, {}}}; }
};

/// x for x > 0, slope * x elsewhere.
struct LeakyRelu : Pointwise<2> {
  static constexpr std::string_view name = "leaky_relu";
  template <class S>
  static S scalar(S x, S slope) {
    return select(x > 0.0, x, x * slope);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g) {
    return {where(s.input(0) > 0, g, g * s.input(1)), Tensor()};
  }
  static Samples samples() { return {{{sample_tensor({3, 3}), wrap_number(0.1)}, {}}}; }
};

/// 1 / (1 + exp(-x))
struct Sigmoid : Pointwise<1> {
  static constexpr std::string_view name = "sigmoid";
  static constexpr TypeRule type_rule = TypeRule::floating;
  // exp only ever sees a number that is not positive, so it cannot overflow.
  template <class S>
  static S scalar(S x) {
    const S e = exp(-abs(x));
    return select(x >= 0.0, S(1.0), e) / (S(1.0) + e);
  }
  static constexpr SaveMask saves[] = {output()};
  // Written with the output, so the input need not be kept.
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor y = s.output();
    return {g * y * (1.0 - y)};
  }
  static Samples samples() { return sample_values({-90.0, -1.0, 0.0, 1.0, 90.0}); }
};

/// x * sigmoid(x)
struct Silu : Pointwise<1> {
  static constexpr std::string_view name = "silu";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x) {
    return x * Sigmoid::scalar(x);
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor x = s.input(0), p = sigmoid(x);
    return {g * (p * (1.0 + x * (1.0 - p)))};
  }
  static Samples samples() { return sample_values({-3.0, -1.0, 0.0, 1.0, 4.0}); }
};

inline constexpr double kSqrtHalf = 0.707106781186547524400844362105;
inline constexpr double kInvSqrtTwoPi = 0.398942280401432677939946059934;
inline constexpr double kSqrtTwoOverPi = 0.797884560802865355879892119869;

/// x * Phi(x), with the error function.
struct Gelu : Pointwise<1> {
  static constexpr std::string_view name = "gelu";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x) {
    return S(0.5) * x * (S(1.0) + erf(x * S(kSqrtHalf)));
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor x = s.input(0);
    return {g * (0.5 * (1.0 + erf(x * kSqrtHalf)) + x * (exp(x * x * -0.5) * kInvSqrtTwoPi))};
  }
  static Samples samples() { return sample_values({-3.0, -1.0, 0.0, 1.0, 4.0}); }
};

/// The approximation of gelu with tanh.
struct GeluTanh : Pointwise<1> {
  static constexpr std::string_view name = "gelu_tanh";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x) {
    const S inner = S(kSqrtTwoOverPi) * (x + S(0.044715) * (x * x * x));
    return S(0.5) * x * (S(1.0) + tanh(inner));
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g) {
    // Beyond 30 the slope is 0 or 1 in every type, and powers of x would overflow the narrow ones.
    const Tensor x = clamp(s.input(0), -30.0, 30.0), x2 = x * x;
    const Tensor t = tanh((x + x2 * x * 0.044715) * kSqrtTwoOverPi);
    return {g *
            (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * ((1.0 + x2 * 0.134145) * kSqrtTwoOverPi))};
  }
  static Samples samples() { return sample_values({-3.0, -1.0, 0.0, 1.0, 4.0}); }
};

/// log(sigmoid(x)), computed without overflow.
struct LogSigmoid : Pointwise<1> {
  static constexpr std::string_view name = "log_sigmoid";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x) {
    return -(select(x < 0.0, -x, S(0.0)) + log1p(exp(-abs(x))));
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g) { return {g * sigmoid(-s.input(0))}; }
  static Samples samples() { return sample_values({-90.0, -1.5, 0.25, 3.0, 90.0}); }
};

/// log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold.
struct Softplus : Pointwise<3> {
  static constexpr std::string_view name = "softplus";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x, S beta, S threshold) {
    const S z = x * beta;
    const S soft = (select(z > 0.0, z, S(0.0)) + log1p(exp(-abs(z)))) / beta;
    return select(z > threshold, x, soft);
  }
  static constexpr SaveMask saves[] = {input(0) | input(1) | input(2), 0, 0};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor z = s.input(0) * s.input(1);
    return {where(z > s.input(2), g, g * sigmoid(z))};
  }
  static Samples samples() {
    return {{{sample_tensor({3, 3}), wrap_number(1.5), wrap_number(2.0)}, {}}};
  }
};

/// x for x > 0, alpha * (exp(x) - 1) elsewhere.
struct Elu : Pointwise<2> {
  static constexpr std::string_view name = "elu";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x, S alpha) {
    return select(x > 0.0, x, alpha * expm1(x));
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), 0};
  static Grads grad(const Saved& s, const Tensor& g) {
    const Tensor x = s.input(0);
    // Where x > 0 the exponential is not used and must not overflow.
    return {where(x > 0, g, g * (exp(clamp(x, {}, 0.0)) * s.input(1)))};
  }
  static Samples samples() { return {{{sample_tensor({3, 3}), wrap_number(1.5)}, {}}}; }
};

/// -(t log(x) + (1 - t) log(1 - x)) for probabilities x and targets t; no logarithm is below -100.
struct BinaryCrossEntropy : Pointwise<2> {
  static constexpr std::string_view name = "binary_cross_entropy";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S scalar(S x, S t) {
    const S on = log(x), off = log(1.0 - x);
    return -(t * select(on < -100.0, S(-100.0), on) +
             (1.0 - t) * select(off < -100.0, S(-100.0), off));
  }
  static constexpr SaveMask saves[] = {input(0) | input(1), input(0)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples() {
    return {{{sample_tensor({3, 3}, 0.1, 0.9), sample_tensor({3, 3}, 0.2, 0.7)}, {}}};
  }
};

}  // namespace grapnel
