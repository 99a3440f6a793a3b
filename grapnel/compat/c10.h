/// Namespace c10 and LibTorch's checking macros.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "grapnel/compat/names.h"

namespace c10 {

using grapnel::BFloat16;
using grapnel::Device;
using grapnel::DeviceType;
/// What LibTorch programs catch. There is no backtrace in it, so what() is the message.
using grapnel::AutoGradMode;
using grapnel::Error;
using grapnel::GradMode;
using grapnel::Half;
using grapnel::IntArrayRef;
using grapnel::IValue;
using grapnel::kCPU;
using grapnel::kCUDA;
using grapnel::Scalar;
using grapnel::ScalarType;
using grapnel::TensorOptions;
using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;
using std::string_view;

template <class T>
using intrusive_ptr = grapnel::IntrusivePtr<T>;

/// A borrowed list. Sizes are an IntArrayRef, which takes braces, too.
template <class T>
using ArrayRef =
    std::conditional_t<std::is_same_v<T, int64_t>, grapnel::IntArrayRef, std::span<const T>>;

using DeviceIndex = int8_t;
using grapnel::kStrided;
using Layout = grapnel::MemoryLayout;

/// All arguments as one text.
template <class... Parts>
std::string str(const Parts&... parts) {
  return grapnel::str(parts...);
}

/// The numbers from one to before another: `for (const auto i : c10::irange(n))`.
template <std::integral T>
class irange_of {
 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;
    explicit iterator(T at) : at_(at) {}
    T operator*() const { return at_; }
    iterator& operator++() {
      ++at_;
      return *this;
    }
    iterator operator++(int) {
      const iterator before = *this;
      ++at_;
      return before;
    }
    bool operator==(const iterator&) const = default;

   private:
    T at_;
  };
  irange_of(T begin, T end) : begin_(begin), end_(std::max(begin, end)) {}
  iterator begin() const { return iterator(begin_); }
  iterator end() const { return iterator(end_); }

 private:
  T begin_, end_;
};
template <std::integral T>
irange_of<T> irange(T end) {
  return {T(), end};
}
template <std::integral A, std::integral B>
irange_of<B> irange(A begin, B end) {
  return {static_cast<B>(begin), end};
}

/// The guard; Grapnel calls it InferenceGuard.
class InferenceMode : public grapnel::InferenceGuard {
 public:
  explicit InferenceMode(bool enabled = true) : InferenceGuard(enabled) {}
  static bool is_enabled() { return grapnel::InferenceMode::is_enabled(); }
};

}  // namespace c10

namespace grapnel::compat {

/// The text of a failed check: the user's parts, or the condition when there are none.
template <class... Parts>
[[noreturn, gnu::cold]] void check_failed(const char* condition, const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0) fail("Expected ", condition, " to be true, but got false.");
  else fail(parts...);
}

}  // namespace grapnel::compat

#define TORCH_CHECK(condition, ...)                                           \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      ::grapnel::compat::check_failed(#condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
#define TORCH_CHECK_WITH(ErrorType, condition, ...) \
  TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) GRAPNEL_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_WARN(...) ::grapnel::base::warn(::grapnel::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                        \
  do {                                              \
    [[maybe_unused]] static const bool said = [&] { \
      TORCH_WARN(__VA_ARGS__);                      \
      return true;                                  \
    }();                                            \
  } while (false)
#define AT_ERROR(...) ::grapnel::fail(__VA_ARGS__)
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
