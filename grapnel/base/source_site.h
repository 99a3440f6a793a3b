/// Where in the user's program something was called, for messages: "train.cpp:42 (train_step)".
///
/// Remembering a place costs one return address; it is turned into file and line only when a
/// message is printed.
///
///   Tensor add(const Tensor& a, const Tensor& b) {               // not inlined
///     const CallSiteScope scope(__builtin_return_address(0));    // the outermost public call wins
///     ... SourceSite{current_call_site()} is kept by whatever is recorded below ...
#pragma once

#include <string>

namespace grapnel::base {

/// The address that a call returns to, or null if nobody knows.
struct SourceSite {
  const void* address = nullptr;
  bool operator==(const SourceSite&) const = default;
};

/// "file.cpp:123 (function)", the path as the compiler recorded it. Without debug lines
/// "function+0x12 in module", without symbols the address. Safe on all threads; asking again for
/// the same site is cheap.
std::string describe(SourceSite site);

extern constinit thread_local const void* call_site [[gnu::tls_model("initial-exec")]];

/// The return address set by the outermost CallSiteScope of this thread, or null.
inline const void* current_call_site() noexcept { return call_site; }

/// Marks a public function, unless one further out on this thread is marked already.
class CallSiteScope {
 public:
  explicit CallSiteScope(const void* return_address) noexcept
      : is_outermost_(call_site == nullptr) {
    if (is_outermost_) call_site = return_address;
  }
  ~CallSiteScope() {
    if (is_outermost_) call_site = nullptr;
  }
  CallSiteScope(const CallSiteScope&) = delete;
  CallSiteScope& operator=(const CallSiteScope&) = delete;

 private:
  const bool is_outermost_;
};

/// Put it around a call back into the user's code (a hook, a captured body): what that code calls
/// has places of its own.
class UserCodeScope {
 public:
  UserCodeScope() noexcept : outer_(call_site) { call_site = nullptr; }
  ~UserCodeScope() { call_site = outer_; }
  UserCodeScope(const UserCodeScope&) = delete;
  UserCodeScope& operator=(const UserCodeScope&) = delete;

 private:
  const void* const outer_;
};

}  // namespace grapnel::base
