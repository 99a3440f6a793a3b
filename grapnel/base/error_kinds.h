/// Kinds of Error that callers may want to tell apart. Each is an Error; in Python each is the
/// built-in exception of its name, too.
#pragma once

#include "grapnel/base/error.h"

namespace grapnel {

/// A value was read where a graph may not break.
class GraphBreak : public Error {
 public:
  using Error::Error;
};

/// A dimension or position that is not there.
class IndexError : public Error {
 public:
  using Error::Error;
};

/// Elements of a type that is not defined there.
class TypeError : public Error {
 public:
  using Error::Error;
};

/// A setting that makes no sense, whatever the tensors are.
class ValueError : public Error {
 public:
  using Error::Error;
};

namespace base {
/// The message of an error, with where it happened.
std::string placed(std::string message);
}  // namespace base

/// Like fail(), with an Error of that kind.
template <class Kind, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_as(const Parts&... parts) {
  throw Kind(base::placed(str(parts...)));
}

/// Like check(), with an Error of that kind.
template <class Kind, class... Parts>
[[gnu::always_inline]] inline void check_as(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail_as<Kind>(parts...);
}

}  // namespace grapnel
