/// Executor: runs the callbacks of futures, one at a time. While one of them waits for a future,
/// the next begins on another thread, so a callback may start a collective and wait for it.
///
/// Note [Callbacks run one at a time]
/// Callbacks of one rank never run at the same moment, so state that only callbacks touch needs no
/// lock. They run on threads of the executor, which are neither threads that drive communication
/// nor workers of the pool; nothing that a callback waits for depends on the thread it blocks.
#pragma once

#include <functional>
#include <memory>

namespace grapnel::dist {

class Executor {
 public:
  /// `around`, if given, is called on each of its threads with what the thread does: it may put
  /// thread-local state in place and take it away again.
  explicit Executor(std::function<void(const std::function<void()>&)> around = {});
  /// Runs what is queued, then ends its threads.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Queues a job, which must not throw. Never blocks.
  void run(std::function<void()> job);

  /// While it lives, futures made on this thread use `executor`.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<Executor> executor);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::shared_ptr<Executor> executor_;
    const std::shared_ptr<Executor>* const before_;
  };

  /// Around a blocking wait: lets the next job begin if this thread is running one.
  class Waiting {
   public:
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
  };

 private:
  struct State;
  static thread_local State* running;  ///< the executor whose job this thread runs
  std::shared_ptr<State> state_;
};

}  // namespace grapnel::dist
