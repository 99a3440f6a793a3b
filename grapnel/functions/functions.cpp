/// Pointwise functions, operators and methods: each is one `apply` of a definition in defs/.
#include "grapnel/functions/functions.h"

#include "grapnel/functions/assign.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/number_operand.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

template <class D>
void check_values(const Tensor& a, const Tensor& b) {
  if constexpr (requires { D::refused; }) check_integers(a, b, D::refused);
}

template <class D>
Tensor call(const Tensor& a, const Tensor& b) {
  check_values<D>(a, b);
  // The square is common enough to be worth a multiplication instead of a power.
  if constexpr (std::is_same_v<D, Pow>)
    if (b.impl().wrapped_number && a.is_floating_point() && b.item().to_double() == 2)
      return apply<Square>(a);
  return apply<D>(a, b);
}
template <class D>
Tensor call(const Tensor& a, const Scalar& b) {
  return call<D>(a, NumberOperand(b));
}
template <class D>
Tensor call(const Scalar& a, const Tensor& b) {
  return call<D>(NumberOperand(a), b);
}
template <class D>
Tensor& call_inplace(const Tensor& a, const Tensor& b) {
  check_values<D>(a, b);
  return apply_inplace<D>(a, b);
}
template <class D>
Tensor& call_inplace(const Tensor& a, const Scalar& b) {
  return call_inplace<D>(a, NumberOperand(b));
}

}  // namespace

// --- one input ---

#define GRAPNEL_DEFINE(name, Def) \
  Tensor name(const Tensor& x) {  \
    GRAPNEL_CALL_SITE;            \
    return apply<Def>(x);         \
  }                               \
  Tensor Tensor::name() const {   \
    GRAPNEL_CALL_SITE;            \
    return apply<Def>(*this);     \
  }
GRAPNEL_UNARY_OPS(GRAPNEL_DEFINE)
GRAPNEL_UNARY_TEST_OPS(GRAPNEL_DEFINE)
#undef GRAPNEL_DEFINE

#define GRAPNEL_DEFINE(name, Def)     \
  Tensor& Tensor::name##_() const {   \
    GRAPNEL_CALL_SITE;                \
    return apply_inplace<Def>(*this); \
  }
GRAPNEL_UNARY_OPS(GRAPNEL_DEFINE)
#undef GRAPNEL_DEFINE

Tensor operator-(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return apply<Neg>(x);
}
Tensor operator!(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return apply<LogicalNot>(x);
}

Tensor operator~(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  if (x.dtype() == kBool) return apply<LogicalNot>(x);
  // All bits turned: of two's complement, -1 - x; of bytes, 255 - x.
  return bitwise_xor(x, wrap_number(x.dtype() == kUInt8 ? 255 : -1));
}

// --- two inputs ---

#define GRAPNEL_FUNCTION(name, Def, A, B) \
  Tensor name(const A& a, const B& b) {   \
    GRAPNEL_CALL_SITE;                    \
    return call<Def>(a, b);               \
  }
#define GRAPNEL_METHOD(name, Def, B)          \
  Tensor Tensor::name(const B& other) const { \
    GRAPNEL_CALL_SITE;                        \
    return call<Def>(*this, other);           \
  }
#define GRAPNEL_INPLACE(name, Def, B)             \
  Tensor& Tensor::name##_(const B& other) const { \
    GRAPNEL_CALL_SITE;                            \
    return call_inplace<Def>(*this, other);       \
  }
#define GRAPNEL_COMPOUND(symbol, Def, B)              \
  Tensor& operator symbol(Tensor & a, const B & b) {  \
    GRAPNEL_CALL_SITE;                                \
    return call_inplace<Def>(a, b);                   \
  }                                                   \
  Tensor& operator symbol(Tensor && a, const B & b) { \
    GRAPNEL_CALL_SITE;                                \
    check_assignable(a, #symbol);                     \
    call_inplace<Def>(a, b);                          \
    put_back(a);                                      \
    return a;                                         \
  }

#define GRAPNEL_DEFINE(name, Def)             \
  GRAPNEL_FUNCTION(name, Def, Tensor, Tensor) \
  GRAPNEL_FUNCTION(name, Def, Tensor, Scalar) \
  GRAPNEL_FUNCTION(name, Def, Scalar, Tensor) \
  GRAPNEL_METHOD(name, Def, Tensor)           \
  GRAPNEL_METHOD(name, Def, Scalar)
GRAPNEL_BINARY_OPS(GRAPNEL_DEFINE)
GRAPNEL_COMPARE_OPS(GRAPNEL_DEFINE)
#undef GRAPNEL_DEFINE

#define GRAPNEL_DEFINE(name, Def)    \
  GRAPNEL_INPLACE(name, Def, Tensor) \
  GRAPNEL_INPLACE(name, Def, Scalar)
GRAPNEL_BINARY_OPS(GRAPNEL_DEFINE)
#undef GRAPNEL_DEFINE

#define GRAPNEL_DEFINE(name, Def)             \
  GRAPNEL_FUNCTION(name, Def, Tensor, Tensor) \
  GRAPNEL_METHOD(name, Def, Tensor)           \
  GRAPNEL_INPLACE(name, Def, Tensor)
GRAPNEL_BINARY_TENSOR_OPS(GRAPNEL_DEFINE)
#undef GRAPNEL_DEFINE

#define GRAPNEL_DEFINE(symbol, Def)                      \
  GRAPNEL_FUNCTION(operator symbol, Def, Tensor, Tensor) \
  GRAPNEL_FUNCTION(operator symbol, Def, Tensor, Scalar)
GRAPNEL_DEFINE(<, Lt)
GRAPNEL_DEFINE(<=, Le)
GRAPNEL_DEFINE(>, Gt)
GRAPNEL_DEFINE(>=, Ge)
GRAPNEL_DEFINE(==, Eq)
GRAPNEL_DEFINE(!=, Ne)
#undef GRAPNEL_DEFINE

#define GRAPNEL_DEFINE(symbol, Def)                      \
  GRAPNEL_FUNCTION(operator symbol, Def, Tensor, Tensor) \
  GRAPNEL_FUNCTION(operator symbol, Def, Tensor, Scalar) \
  GRAPNEL_FUNCTION(operator symbol, Def, Scalar, Tensor) \
  GRAPNEL_COMPOUND(symbol## =, Def, Tensor)              \
  GRAPNEL_COMPOUND(symbol## =, Def, Scalar)
GRAPNEL_DEFINE(+, Add)
GRAPNEL_DEFINE(-, Sub)
GRAPNEL_DEFINE(*, Mul)
GRAPNEL_DEFINE(/, Div)
#undef GRAPNEL_DEFINE

GRAPNEL_FUNCTION(bitwise_and, BitwiseAnd, Tensor, Tensor)
GRAPNEL_FUNCTION(bitwise_or, BitwiseOr, Tensor, Tensor)
GRAPNEL_FUNCTION(bitwise_xor, BitwiseXor, Tensor, Tensor)
GRAPNEL_FUNCTION(operator%, Remainder, Tensor, Tensor)
GRAPNEL_FUNCTION(operator%, Remainder, Tensor, Scalar)
GRAPNEL_FUNCTION(operator&, BitwiseAnd, Tensor, Tensor)
GRAPNEL_FUNCTION(operator|, BitwiseOr, Tensor, Tensor)
GRAPNEL_FUNCTION(operator^, BitwiseXor, Tensor, Tensor)

#undef GRAPNEL_FUNCTION
#undef GRAPNEL_METHOD
#undef GRAPNEL_INPLACE
#undef GRAPNEL_COMPOUND

// --- add and sub, whose second operand may be scaled ---

namespace {

bool is_one(const Scalar& alpha) {
  return alpha.is_floating() ? alpha.to_double() == 1 : alpha.to_int() == 1;
}

void check_alpha(std::string_view op, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  const Tensor* inputs[] = {&a, &b};
  const DType type = result_type(inputs);
  check(is_floating(type) || alpha.is_integral(), op, ": alpha is ", alpha, " but the result is ",
        type, ".\nAn integer result takes an integer alpha.");
  check(!alpha.is_bool() || type == kBool, op,
        ": a bool alpha goes with bool tensors only, the result is ", type, ".");
}

Tensor scaled(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_one(alpha)) return apply<Add>(a, b);
  check_alpha("add", a, b, alpha);
  return apply<AddScaled>(a, b, wrap_number(alpha));
}
Tensor& scaled_inplace(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_one(alpha)) return apply_inplace<Add>(a, b);
  check_alpha("add", a, b, alpha);
  return apply_inplace<AddScaled>(a, b, wrap_number(alpha));
}

/// a - alpha * b and a + (-alpha) * b have equal bits.
Scalar negated(const Scalar& alpha) {
  return alpha.is_floating() ? Scalar(-alpha.to_double()) : Scalar(-alpha.to_int());
}

void refuse_bools(const Tensor& a, const Tensor& b) {
  const Tensor* const both[] = {&a, &b};
  Sub::check_types(both);
}
Tensor less_scaled(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_one(alpha)) return apply<Sub>(a, b);
  refuse_bools(a, b);
  check_alpha("sub", a, b, alpha);
  return apply<AddScaled>(a, b, wrap_number(negated(alpha)));
}
Tensor& less_scaled_inplace(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_one(alpha)) return apply_inplace<Sub>(a, b);
  refuse_bools(a, b);
  check_alpha("sub", a, b, alpha);
  return apply_inplace<AddScaled>(a, b, wrap_number(negated(alpha)));
}

}  // namespace

#define GRAPNEL_DEFINE(name, fn)                                            \
  Tensor name(const Tensor& a, const Tensor& b, const Scalar& alpha) {      \
    GRAPNEL_CALL_SITE;                                                      \
    return fn(a, b, alpha);                                                 \
  }                                                                         \
  Tensor name(const Tensor& a, const Scalar& b, const Scalar& alpha) {      \
    GRAPNEL_CALL_SITE;                                                      \
    return fn(a, wrap_number(b), alpha);                                    \
  }                                                                         \
  Tensor Tensor::name(const Tensor& other, const Scalar& alpha) const {     \
    GRAPNEL_CALL_SITE;                                                      \
    return fn(*this, other, alpha);                                         \
  }                                                                         \
  Tensor Tensor::name(const Scalar& other, const Scalar& alpha) const {     \
    GRAPNEL_CALL_SITE;                                                      \
    return fn(*this, wrap_number(other), alpha);                            \
  }                                                                         \
  Tensor& Tensor::name##_(const Tensor& other, const Scalar& alpha) const { \
    GRAPNEL_CALL_SITE;                                                      \
    return fn##_inplace(*this, other, alpha);                               \
  }                                                                         \
  Tensor& Tensor::name##_(const Scalar& other, const Scalar& alpha) const { \
    GRAPNEL_CALL_SITE;                                                      \
    return fn##_inplace(*this, wrap_number(other), alpha);                  \
  }
GRAPNEL_DEFINE(add, scaled)
GRAPNEL_DEFINE(sub, less_scaled)
#undef GRAPNEL_DEFINE

}  // namespace grapnel
