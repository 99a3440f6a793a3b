/// Errors: what happened, with which values, and what to do about it.
///
/// `Error` is the caller's to fix; `InternalError` is ours and asks for a report. The library
/// throws one of the two (or passes a user's own exception through); it prints no errors and never
/// aborts.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace grapnel {

/// What the caller has to mend: a wrong shape, a missing file, a hook that returned nonsense. The
/// text says what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A mistake of the library. Please report it.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Joins anything streamable into one string.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

namespace base {
/// What fail() and check() end in.
[[noreturn]] void throw_error(std::string message);
/// What GRAPNEL_ASSERT ends in.
[[noreturn]] void throw_internal(const char* condition, const char* file, int line,
                                 std::string message);
}  // namespace base

/// Throws an Error made of its arguments.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  base::throw_error(str(parts...));
}

/// Throws `Error` with the joined message unless `condition` holds. Parts that are costly to
/// compute want `if (!condition) fail(...)`.
template <class... Parts>
[[gnu::always_inline]] inline void check(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

/// For facts the library itself guarantees.
#define GRAPNEL_ASSERT(condition, ...)                                \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::grapnel::base::throw_internal(#condition, __FILE__, __LINE__, \
                                      ::grapnel::str(__VA_ARGS__));   \
  } while (false)

}  // namespace grapnel
