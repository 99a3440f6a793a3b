/// The one way in which the library starts threads, and what becomes of them when the process
/// forks.
///
/// Note [Threads and forks]
/// A child of a fork has one thread: the one that forked. What the process as a whole shares is
/// fit for use there (at_fork.h). An object that owns threads, such as a group of ranks or a data
/// loader at work, is not: what its threads would do is never done, and its locks may be taken by
/// one of them. Such an object remembers its process; in another one it refuses to work, or makes
/// do without threads, and its destructor leaves alone what it cannot end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>

namespace grapnel::base {

/// A thread of the library's. Signals belong to the threads of the program: this one holds them
/// back, save for faults of its own.
[[nodiscard]] std::thread start_thread(std::function<void()> body);
/// A thread that runs a function of the user's from beginning to end, with the signals of the
/// caller.
[[nodiscard]] std::thread start_user_thread(std::function<void()> body);

/// The process in which an object was made.
class HomeProcess {
 public:
  HomeProcess();
  /// Whether this is another one, a child by fork.
  bool is_elsewhere() const noexcept;

 private:
  pid_t pid_;
};

/// Waits for a thread that has been told to end. If it is the calling thread itself, or one of the
/// process this one was forked from, it is let go instead.
void join(std::thread& thread, const HomeProcess& home);

/// Keeps the library mapped until the process ends, whatever closes it: a thread may be running in
/// it, or about to end in it.
void stay_loaded() noexcept;

}  // namespace grapnel::base
