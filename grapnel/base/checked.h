/// Arithmetic on numbers from outside: sizes, strides, offsets and counts that a user, a file or a
/// hook chose. What does not fit is an Error with the values; nothing wraps around, and nothing is
/// cut off on the way to a smaller type. Such numbers meet plain +, * and static_cast only after
/// they were bounded by something that exists, like the size of a tensor.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <utility>

#include "grapnel/base/error.h"

namespace grapnel {

namespace base {
template <class T>
[[noreturn, gnu::cold, gnu::noinline]] void fail_to_fit(const char* what, T a, const char* op,
                                                        T b) {
  fail(what, ": ", a, op, b, " does not fit in ", 8 * sizeof(T), " bits.");
}
}  // namespace base

/// a + b. `what` begins the error: the op, or the file and what was read from it.
template <std::integral T>
T checked_add(T a, T b, const char* what) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) [[unlikely]]
    base::fail_to_fit(what, a, " + ", b);
  return result;
}

template <std::integral T>
T checked_sub(T a, T b, const char* what) {
  T result;
  if (__builtin_sub_overflow(a, b, &result)) [[unlikely]]
    base::fail_to_fit(what, a, " - ", b);
  return result;
}

template <std::integral T>
T checked_mul(T a, T b, const char* what) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) [[unlikely]]
    base::fail_to_fit(what, a, " * ", b);
  return result;
}

/// `value` as a type with less room.
template <std::integral To, std::integral From>
To checked_cast(From value, const char* what) {
  if (!std::in_range<To>(value)) [[unlikely]]
    fail(what, ": ", value, " is out of range; it must be from ",
         int64_t{std::numeric_limits<To>::min()}, " to ", +std::numeric_limits<To>::max(), ".");
  return static_cast<To>(value);
}

/// a / b, rounded up, for a >= 0 and b > 0. The usual (a + b - 1) / b wraps around for large b.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return a == 0 ? 0 : (a - 1) / b + 1; }

}  // namespace grapnel
