/// Pointwise functions of three and more inputs, and activations with parameters.
#include "grapnel/functions/functions.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

// --- selection ---

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  return apply<Where>(condition, a, b);
}
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b) {
  GRAPNEL_CALL_SITE;
  return where(condition, a, wrap_number(b));
}
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  return where(condition, wrap_number(a), b);
}
Tensor Tensor::where(const Tensor& condition, const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return grapnel::where(condition, *this, other);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value) {
  GRAPNEL_CALL_SITE;
  return apply<MaskedFill>(x, mask, wrap_number(value));
}
Tensor Tensor::masked_fill(const Tensor& mask, const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return grapnel::masked_fill(*this, mask, value);
}
Tensor& Tensor::masked_fill_(const Tensor& mask, const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<MaskedFill>(*this, mask, wrap_number(value));
}

namespace {
void check_bounds(const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  check(min || max, "clamp: neither bound is given.\nPass a minimum, a maximum or both.");
}
}  // namespace

Tensor clamp(const Tensor& x, const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  GRAPNEL_CALL_SITE;
  check_bounds(min, max);
  if (!max) return apply<ClampMin>(x, wrap_number(*min));
  if (!min) return apply<ClampMax>(x, wrap_number(*max));
  return apply<Clamp>(x, wrap_number(*min), wrap_number(*max));
}
Tensor Tensor::clamp(const std::optional<Scalar>& min, const std::optional<Scalar>& max) const {
  GRAPNEL_CALL_SITE;
  return grapnel::clamp(*this, min, max);
}
Tensor& Tensor::clamp_(const std::optional<Scalar>& min, const std::optional<Scalar>& max) const {
  GRAPNEL_CALL_SITE;
  check_bounds(min, max);
  if (!max) return apply_inplace<ClampMin>(*this, wrap_number(*min));
  if (!min) return apply_inplace<ClampMax>(*this, wrap_number(*max));
  return apply_inplace<Clamp>(*this, wrap_number(*min), wrap_number(*max));
}

// --- several products at once ---

Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight) {
  GRAPNEL_CALL_SITE;
  return apply<Lerp>(start, end, weight);
}
Tensor lerp(const Tensor& start, const Tensor& end, const Scalar& weight) {
  GRAPNEL_CALL_SITE;
  return apply<Lerp>(start, end, wrap_number(weight));
}
Tensor Tensor::lerp(const Tensor& end, const Scalar& weight) const {
  GRAPNEL_CALL_SITE;
  return apply<Lerp>(*this, end, wrap_number(weight));
}
Tensor& Tensor::lerp_(const Tensor& end, const Scalar& weight) const {
  GRAPNEL_CALL_SITE;
  return apply_inplace<Lerp>(*this, end, wrap_number(weight));
}

#define GRAPNEL_DEFINE(name, Def)                                                        \
  Tensor name(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {  \
    GRAPNEL_CALL_SITE;                                                                   \
    return apply<Def>(x, a, b, wrap_number(value));                                      \
  }                                                                                      \
  Tensor Tensor::name(const Tensor& a, const Tensor& b, const Scalar& value) const {     \
    GRAPNEL_CALL_SITE;                                                                   \
    return apply<Def>(*this, a, b, wrap_number(value));                                  \
  }                                                                                      \
  Tensor& Tensor::name##_(const Tensor& a, const Tensor& b, const Scalar& value) const { \
    GRAPNEL_CALL_SITE;                                                                   \
    return apply_inplace<Def>(*this, a, b, wrap_number(value));                          \
  }
GRAPNEL_DEFINE(addcmul, Addcmul)
GRAPNEL_DEFINE(addcdiv, Addcdiv)
#undef GRAPNEL_DEFINE

// --- activations ---

Tensor leaky_relu(const Tensor& x, const Scalar& negative_slope) {
  GRAPNEL_CALL_SITE;
  return apply<LeakyRelu>(x, wrap_number(negative_slope));
}

Tensor gelu(const Tensor& x, std::string_view approximate) {
  GRAPNEL_CALL_SITE;
  check(approximate == "none" || approximate == "tanh",
        "gelu: approximate is \"none\" or \"tanh\", got \"", approximate, "\".");
  return approximate == "none" ? apply<Gelu>(x) : apply<GeluTanh>(x);
}

Tensor softplus(const Tensor& x, const Scalar& beta, const Scalar& threshold) {
  GRAPNEL_CALL_SITE;
  return apply<Softplus>(x, wrap_number(beta), wrap_number(threshold));
}

Tensor elu(const Tensor& x, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale) {
  GRAPNEL_CALL_SITE;
  if (input_scale.to_double() != 1) {
    check(input_scale.to_double() > 0, "elu: input_scale must be positive, got ", input_scale, ".");
    return where(x > 0, x, elu(x * input_scale, alpha)) * scale;
  }
  const Tensor y = apply<Elu>(x, wrap_number(alpha));
  return scale.to_double() == 1 ? y : y * scale;
}

namespace {
/// log(x), not below -100, with a gradient that is 0 where x is.
Tensor bounded_log(const Tensor& x) {
  const double least = 1e-43;  // about exp(-99)
  return where(x < least, -100.0, log(clamp(x, least, {})));
}
}  // namespace

Grads BinaryCrossEntropy::grad(const Saved& s, const Tensor& g) {
  // The small number is not one of the narrow types.
  const auto wide = [](const Tensor& t) { return t.to(dtype_of(compute_type(t.dtype()))); };
  const Tensor x = wide(s.input(0));
  Grads out(2);
  if (s.needs(0)) {
    const Tensor slope = (x - wide(s.input(1))) / clamp(x * (1.0 - x), 1e-12, {});
    out[0] = (wide(g) * slope).to(s.input_dtype(0));
  }
  if (s.needs(1)) out[1] = (wide(g) * (bounded_log(1.0 - x) - bounded_log(x))).to(s.input_dtype(1));
  return out;
}

}  // namespace grapnel
