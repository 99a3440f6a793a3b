/// What the library is doing on a thread, for messages: the op that was called, the module that is
/// being called, the hook that runs.
///
/// Note [Places in messages]
/// `fail` ends its message with lines that say where it happened:
///
///   linear: the last dimension of x must be 9 (weight is [4, 9]), x is [2, 8].
///     at train.cpp:42 (train_step()), in blocks.3.fc of Net
///     in the tensor hook 'clip' registered at train.cpp:12, at mul, called at net.cpp:7 (f())
///
/// They are put together when something fails, from the stack and from what stands here; a call
/// that succeeds pays for a few stores. A hook, or a node's backward, adds its line while the
/// exception passes: an Error in place, so that its type stays; see `explain` for other exceptions.
/// Work that is recorded and done later remembers its places: see capture::Trace.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "grapnel/base/context.h"
#include "grapnel/base/source_site.h"

namespace grapnel {
class Error;
}

namespace grapnel::base {

/// A place as it was, for what happens later.
class Remembered {
 public:
  virtual ~Remembered() = default;
  /// "in blocks.3.fc of Net"
  virtual std::string text() const = 0;
  /// A module stands behind the line of the user's, a hook on a line of its own.
  virtual bool is_module() const { return false; }
};

/// Something that is under way on this thread; they nest.
class Place {
 public:
  enum class Kind : uint8_t { module, hook };
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  static Place* innermost() noexcept { return this_context.place; }
  Place* outer() const { return outer_; }
  Kind kind() const { return kind_; }
  virtual std::shared_ptr<const Remembered> remember() const = 0;

  /// For the recorder: the number of this place in the trace of that number.
  uint64_t trace = 0;
  uint32_t number = 0;

 protected:
  explicit Place(Kind kind) noexcept : outer_(this_context.place), kind_(kind) {
    this_context.place = this;
  }
  ~Place() { this_context.place = outer_; }

 private:
  Place* const outer_;
  const Kind kind_;
};

/// The address that the user's call returns to: of the module that makes the op's, or of the op.
inline const void* users_call_site() noexcept {
  return this_context.module_site ? this_context.module_site : this_context.call_site;
}

/// A call of a module: what the library does inside has the place of the call, and what the user's
/// own forward does has places of its own.
class ModuleCallSite {
 public:
  ModuleCallSite(const void* return_address, bool users) noexcept
      : outer_(this_context.module_site) {
    if (users) this_context.module_site = nullptr;
    else if (outer_ == nullptr) this_context.module_site = return_address;
  }
  ~ModuleCallSite() { this_context.module_site = outer_; }
  ModuleCallSite(const ModuleCallSite&) = delete;
  ModuleCallSite& operator=(const ModuleCallSite&) = delete;

 private:
  const void* const outer_;
};

/// Put it around code of the user that the library calls in the middle of its own: a hook.
class HookCodeScope {
 public:
  HookCodeScope() noexcept = default;
  ~HookCodeScope() { this_context.called_op = op_; }
  HookCodeScope(const HookCodeScope&) = delete;
  HookCodeScope& operator=(const HookCodeScope&) = delete;

 private:
  const char* const op_ = std::exchange(this_context.called_op, nullptr);
  const UserCodeScope site_{};
  const ModuleCallSite module_{nullptr, /*users=*/true};
};

// --- what a message ends with ---

/// `message` without the lines that say where it happened.
std::string_view without_places(std::string_view message);
/// With them behind semicolons, for a message inside another one.
std::string with_places_inside(std::string_view message);
/// The message of an Error, without them.
std::string_view message_of(const Error& error);
/// `message` with them.
std::string with_place(const std::string& message);
/// Replaces the lines that say where it happened: it was recorded there, by that op, and done later.
void set_place(Error& error, const void* site, const char* op, const Remembered* place);
/// For catch blocks. Adds a line to the exception that is being handled: to an Error in its text,
/// to any other beside it, for `explain`.
void note(const std::string& line) noexcept;
/// Throws on what another thread threw on behalf of this one, which knows where the user is.
[[noreturn]] void rethrow_here(const std::exception_ptr& error);

}  // namespace grapnel::base

namespace grapnel {

/// What is known of an exception: its text, and through which hooks and nodes it came. Exceptions of
/// any type pass through the library as they are; this is how to ask about the one that was caught:
///
///   catch (const std::exception&) { std::cerr << grapnel::explain() << '\n'; }
///
/// The last few that came through hooks are kept for that until others take their places.
std::string explain(const std::exception_ptr& error = std::current_exception());

}  // namespace grapnel
