/// Where in the user's program something was called, for messages: "train.cpp:42 (train_step)".
///
/// Remembering a place costs one return address; it is turned into file and line only when a
/// message is printed.
///
///   Tensor add(const Tensor& a, const Tensor& b) {               // not inlined
///     const CallSiteScope scope(__builtin_return_address(0));    // the outermost public call wins
///     ... SourceSite{current_call_site()} is kept by whatever is recorded below ...
///
/// Note [Foreign sites]
/// A front end in another language has lines that the compiler knows nothing of. It numbers them, and
/// a number with bit 63 set, where no address of code lies, goes wherever a site goes: into a
/// CallSiteScope around a call, into the options of a hook. The front end says what they mean when a
/// message is printed: see base/foreign.h.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "grapnel/base/context.h"

namespace grapnel::base {

/// The address that a call returns to, or a foreign site, or null if nobody knows.
struct SourceSite {
  const void* address = nullptr;
  bool operator==(const SourceSite&) const = default;

  /// A line of another language: see Note [Foreign sites]. Of the number, 63 bits are kept.
  static SourceSite foreign(uint64_t number) noexcept {
    return {reinterpret_cast<const void*>(static_cast<uintptr_t>(number | kForeign))};
  }
  bool is_foreign() const noexcept { return (word() & kForeign) != 0; }
  uint64_t foreign_number() const noexcept { return word() & ~kForeign; }

 private:
  static constexpr uint64_t kForeign = uint64_t{1} << 63;
  uint64_t word() const noexcept { return reinterpret_cast<uintptr_t>(address); }
};

/// "file.cpp:123 (function)", the path as the compiler recorded it. Without debug lines
/// "function+0x12 in module", without symbols the address. Safe on all threads; asking again for
/// the same site is cheap.
std::string describe(SourceSite site);

/// The line that registered something: one of C++, which the compiler fills in as a default argument
/// `std::source_location::current()`, or a foreign site. An empty one is for the library's own.
class SourceLine {
 public:
  constexpr SourceLine() = default;
  constexpr SourceLine(std::source_location line) noexcept : line_(line) {}
  constexpr SourceLine(SourceSite foreign) noexcept : foreign_(foreign) {}
  constexpr bool known() const noexcept { return foreign_.address != nullptr || line_.line() != 0; }
  /// "train.cpp:12", or what the front end says of a foreign site; "" if nobody's.
  std::string str() const;

 private:
  std::source_location line_ = {};
  SourceSite foreign_ = {};
};

/// The return address set by the outermost CallSiteScope of this thread, or null.
inline const void* current_call_site() noexcept { return this_context.call_site; }

/// Marks a public function, unless one further out on this thread is marked already.
class CallSiteScope {
 public:
  explicit CallSiteScope(const void* return_address) noexcept
      : is_outermost_(this_context.call_site == nullptr) {
    if (is_outermost_) this_context.call_site = return_address;
  }
  ~CallSiteScope() {
    if (is_outermost_) this_context.call_site = nullptr;
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
  UserCodeScope() noexcept : outer_(this_context.call_site) { this_context.call_site = nullptr; }
  ~UserCodeScope() { this_context.call_site = outer_; }
  UserCodeScope(const UserCodeScope&) = delete;
  UserCodeScope& operator=(const UserCodeScope&) = delete;

 private:
  const void* const outer_;
};

}  // namespace grapnel::base
