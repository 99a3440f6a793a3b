/// A plain number handed to an op: remembers whether it was a bool, an integer or a floating-point
/// value, because type promotion asks.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <ostream>

#include "grapnel/tensor/dtype.h"

namespace grapnel {

/// One number of any type: integer, floating or boolean.
class Scalar {
 public:
  Scalar() : Scalar(0) {}
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  Scalar(T value) {
    if constexpr (std::same_as<T, bool>) kind_ = Kind::Bool, integer_ = value;
    else if constexpr (std::integral<T>) kind_ = Kind::Int, integer_ = static_cast<int64_t>(value);
    else kind_ = Kind::Float, number_ = static_cast<double>(value);
  }
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}

  bool is_bool() const { return kind_ == Kind::Bool; }
  bool is_integral() const { return kind_ != Kind::Float; }
  bool is_floating() const { return kind_ == Kind::Float; }
  double to_double() const {
    return kind_ == Kind::Float ? number_ : static_cast<double>(integer_);
  }
  /// Truncates; NaN and values out of range give 0, so the result is defined everywhere.
  int64_t to_int() const {
    if (kind_ != Kind::Float) return integer_;
    return std::fabs(number_) < 9.2e18 ? static_cast<int64_t>(number_) : 0;
  }
  bool to_bool() const { return kind_ == Kind::Float ? number_ != 0 : integer_ != 0; }
  template <class T>
  T to() const {
    if constexpr (std::same_as<T, bool>) return to_bool();
    else if constexpr (std::integral<T>) return static_cast<T>(to_int());
    else if constexpr (std::floating_point<T>) return static_cast<T>(to_double());
    else return kind_ == Kind::Float ? T(number_) : T(static_cast<double>(integer_));
  }
  // LibTorch's names.
  double toDouble() const { return to_double(); }
  float toFloat() const { return static_cast<float>(to_double()); }
  int toInt() const { return static_cast<int>(to_int()); }
  int64_t toLong() const { return to_int(); }
  bool toBool() const { return to_bool(); }
  bool isFloatingPoint() const { return is_floating(); }
  bool isIntegral(bool include_bool) const { return is_integral() && (include_bool || !is_bool()); }
  bool isBoolean() const { return is_bool(); }

  /// The type of the 0-dimensional tensor that stands for this number.
  DType dtype() const { return is_bool() ? kBool : is_integral() ? kInt64 : kFloat64; }

  friend std::ostream& operator<<(std::ostream& out, const Scalar& s) {
    if (s.kind_ == Kind::Float) return out << s.number_;
    if (s.kind_ == Kind::Bool) return out << (s.integer_ ? "true" : "false");
    return out << s.integer_;
  }

 private:
  enum class Kind : uint8_t { Bool, Int, Float };
  Kind kind_;
  union {
    int64_t integer_;
    double number_;
  };
};

}  // namespace grapnel
