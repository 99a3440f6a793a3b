/// Namespace c10 and LibTorch's checking macros.
#pragma once

#include <optional>
#include <span>
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
#define TORCH_WARN(...) ::grapnel::base::warn(::grapnel::str(__VA_ARGS__))
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
