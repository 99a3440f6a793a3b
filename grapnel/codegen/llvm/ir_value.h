/// Value<T>: a scalar that computes nothing and emits the instruction instead.
///
/// Formulas of ops (`D::scalar<S>`) are instantiated with it unchanged; what they say goes,
/// operation by operation, to the Emitter of the thread. Nothing here knows LLVM: another target is
/// another Emitter.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "grapnel/math/scalar.h"

namespace grapnel::codegen {

enum class Type : uint8_t { f32, f64, i32, i64 };
// clang-format off
enum class Operation : uint8_t {
  add, sub, mul, div, neg, abs, sqrt, fma, fmod, floor, ceil, trunc, round_even,  // arithmetic
  bit_and, bit_or, bit_xor, shift_left, shift_right, shift_right_logical,         // integers
  lt, gt, le, ge, eq, ne, mask_and, mask_or, mask_xor, mask_not, select,          // masks
  bits, from_bits,                                                                // the same bits
  to_i32, to_i64, to_f32, to_f64,                                                 // nearest values
};
// clang-format on

/// The number of a value in its emitter.
using Ref = int32_t;

class Emitter {
 public:
  /// A constant; the pattern is that of the type.
  virtual Ref constant(Type type, uint64_t pattern) = 0;
  /// `type` is the operands' own (of a select, that of the two it chooses from).
  virtual Ref emit(Operation operation, Type type, Ref a, Ref b = -1, Ref c = -1) = 0;
  /// table[index] for each lane.
  virtual Ref lookup(const double* table, int count, Ref index) = 0;
  /// Whether there are instructions that round to whole numbers.
  virtual bool can_round() const = 0;

  /// The one that formulas emit to.
  static Emitter& current() { return *current_; }
  class Scope {
   public:
    explicit Scope(Emitter& emitter) : before_(current_) { current_ = &emitter; }
    ~Scope() { current_ = before_; }
    Scope(const Scope&) = delete;

   private:
    Emitter* before_;
  };

 protected:
  ~Emitter() = default;

 private:
  inline static thread_local Emitter* current_ = nullptr;
};

inline Ref emit(Operation operation, Type type, Ref a, Ref b = -1, Ref c = -1) {
  return Emitter::current().emit(operation, type, a, b, c);
}

/// What comparisons give.
struct Mask {
  Ref ref;
  friend Mask operator&(Mask a, Mask b) {
    return {emit(Operation::mask_and, Type::i32, a.ref, b.ref)};
  }
  friend Mask operator|(Mask a, Mask b) {
    return {emit(Operation::mask_or, Type::i32, a.ref, b.ref)};
  }
  friend Mask operator!=(Mask a, Mask b) {
    return {emit(Operation::mask_xor, Type::i32, a.ref, b.ref)};
  }
  friend Mask operator!(Mask a) { return {emit(Operation::mask_not, Type::i32, a.ref)}; }
};

template <class T>
struct Value {
  using value_type = T;
  static constexpr bool is_float = std::is_floating_point_v<T>;
  static constexpr Type type = is_float ? (sizeof(T) == 4 ? Type::f32 : Type::f64)
                                        : (sizeof(T) == 4 ? Type::i32 : Type::i64);
  Ref ref = -1;

  Value() = default;
  Value(double literal) : Value(of(static_cast<T>(literal))) {}
  static Value from(Ref r) {
    Value v;
    v.ref = r;
    return v;
  }
  static Value of(T value) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    return from(Emitter::current().constant(type, std::bit_cast<Bits>(value)));
  }
  static Value make(Operation operation, Value a) { return from(emit(operation, type, a.ref)); }
  static Value make(Operation operation, Value a, Value b) {
    return from(emit(operation, type, a.ref, b.ref));
  }
  static Mask compare(Operation operation, Value a, Value b) {
    return {emit(operation, type, a.ref, b.ref)};
  }
  /// By a constant number of bits.
  static Value shift(Operation operation, Value a, int k) {
    return make(operation, a, of(static_cast<T>(k)));
  }

  friend Value operator+(Value a, Value b) { return make(Operation::add, a, b); }
  friend Value operator-(Value a, Value b) { return make(Operation::sub, a, b); }
  friend Value operator*(Value a, Value b) { return make(Operation::mul, a, b); }
  friend Value operator/(Value a, Value b) {
    if constexpr (is_float) {
      return make(Operation::div, a, b);
    } else {
      // As Num: truncating, and defined where the processor would trap.
      const Mask by_zero = b == Value(0.0), by_minus_one = b == Value(-1.0);
      const Value quotient = make(Operation::div, a, select(by_zero | by_minus_one, Value(1.0), b));
      return select(by_zero, Value(0.0), select(by_minus_one, -a, quotient));
    }
  }
  friend Value operator-(Value a) {
    if constexpr (is_float) return make(Operation::neg, a);
    else return Value(0.0) - a;
  }

  friend Mask operator<(Value a, Value b) { return compare(Operation::lt, a, b); }
  friend Mask operator>(Value a, Value b) { return compare(Operation::gt, a, b); }
  friend Mask operator<=(Value a, Value b) { return compare(Operation::le, a, b); }
  friend Mask operator>=(Value a, Value b) { return compare(Operation::ge, a, b); }
  friend Mask operator==(Value a, Value b) { return compare(Operation::eq, a, b); }
  friend Mask operator!=(Value a, Value b) { return compare(Operation::ne, a, b); }
  friend Value select(Mask mask, Value a, Value b) {
    return from(emit(Operation::select, type, mask.ref, a.ref, b.ref));
  }

  friend Value operator&(Value a, Value b)
    requires(!is_float)
  {
    return make(Operation::bit_and, a, b);
  }
  friend Value operator|(Value a, Value b)
    requires(!is_float)
  {
    return make(Operation::bit_or, a, b);
  }
  friend Value operator^(Value a, Value b)
    requires(!is_float)
  {
    return make(Operation::bit_xor, a, b);
  }
  friend Value operator<<(Value a, int k)
    requires(!is_float)
  {
    return shift(Operation::shift_left, a, k);
  }
  friend Value operator>>(Value a, int k)
    requires(!is_float)
  {
    return shift(Operation::shift_right, a, k);
  }
  friend Value shift_right_logical(Value a, int k)
    requires(!is_float)
  {
    return shift(Operation::shift_right_logical, a, k);
  }

  friend Value abs(Value x) {
    if constexpr (is_float) return make(Operation::abs, x);
    else return select(x < 0.0, -x, x);
  }
  friend Value sqrt(Value x)
    requires(is_float)
  {
    return make(Operation::sqrt, x);
  }
  friend Value fma(Value a, Value b, Value c)
    requires(is_float)
  {
    return from(emit(Operation::fma, type, a.ref, b.ref, c.ref));
  }
  friend Value fmod(Value a, Value b)
    requires(is_float)
  {
    return make(Operation::fmod, a, b);
  }

  friend Value floor(Value x) {
    if constexpr (!is_float) return x;
    else
      return Emitter::current().can_round() ? make(Operation::floor, x)
                                            : detail::floor_by_adding(x);
  }
  friend Value ceil(Value x) {
    if constexpr (!is_float) return x;
    else
      return Emitter::current().can_round() ? make(Operation::ceil, x) : detail::ceil_by_adding(x);
  }
  friend Value trunc(Value x) {
    if constexpr (!is_float) return x;
    else
      return Emitter::current().can_round() ? make(Operation::trunc, x)
                                            : detail::trunc_by_adding(x);
  }
  friend Value round_even(Value x) {
    if constexpr (!is_float) return x;
    else
      return Emitter::current().can_round() ? make(Operation::round_even, x)
                                            : detail::round_by_adding(x);
  }
};

inline Value<int32_t> bits(Value<float> x) {
  return Value<int32_t>::from(emit(Operation::bits, Type::f32, x.ref));
}
inline Value<int64_t> bits(Value<double> x) {
  return Value<int64_t>::from(emit(Operation::bits, Type::f64, x.ref));
}
inline Value<float> from_bits(Value<int32_t> i) {
  return Value<float>::from(emit(Operation::from_bits, Type::i32, i.ref));
}
inline Value<double> from_bits(Value<int64_t> i) {
  return Value<double>::from(emit(Operation::from_bits, Type::i64, i.ref));
}

/// The nearest value of another type; floats are truncated to integers and must lie in their range,
/// integers keep their low bits.
template <class To, class From>
Value<To> cast(Value<From> x) {
  if constexpr (std::is_same_v<To, From>) return x;
  constexpr Operation to[] = {Operation::to_f32, Operation::to_f64, Operation::to_i32,
                              Operation::to_i64};
  return Value<To>::from(emit(to[static_cast<int>(Value<To>::type)], Value<From>::type, x.ref));
}
inline Value<int32_t> to_int(Value<float> x) { return cast<int32_t>(x); }
inline Value<int64_t> to_int(Value<double> x) { return cast<int64_t>(x); }
inline Value<float> to_float(Value<int32_t> i) { return cast<float>(i); }
inline Value<double> to_float(Value<int64_t> i) { return cast<double>(i); }
inline Value<double> widen(Value<float> x) { return cast<double>(x); }
inline Value<float> narrow(Value<double> x) { return cast<float>(x); }
inline Value<int32_t> narrow(Value<int64_t> i) { return cast<int32_t>(i); }

template <int count>
Value<double> lookup(const double (&table)[count], Value<int64_t> index) {
  return Value<double>::from(Emitter::current().lookup(table, count, index.ref));
}

}  // namespace grapnel::codegen

namespace grapnel {
template <>
struct IntOfImpl<codegen::Value<float>> {
  using type = codegen::Value<int32_t>;
};
template <>
struct IntOfImpl<codegen::Value<double>> {
  using type = codegen::Value<int64_t>;
};
}  // namespace grapnel
