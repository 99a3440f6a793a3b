/// The engine that drives MPI: a thread that makes its calls, and a way for threads that wait to
/// make them in its stead.
///
/// Note [Who calls MPI]
/// The communication thread initialises MPI and makes every call after that, so any level of thread
/// support will do. If the program has initialised MPI itself below MPI_THREAD_SERIALIZED, there is
/// no such thread: progress is then made inside waits of the thread that called dist::init().
/// Deadlines are minded by the ledger on a thread of its own, which calls nothing of MPI, so they
/// hold even if MPI blocks.
///
/// Calls are made one at a time, by whoever has the turn. A thread that begins to wait takes it, if
/// it is free, and keeps it as long as something is copied: a short collective is then complete
/// before the communication thread would have woken up. It makes no call that may block, and when
/// nothing has come for a moment it leaves the rest to the communication thread; so deadlines hold
/// for it, too.
#pragma once

#include "grapnel/base/threads.h"
#include "grapnel/dist/communicator_mpi.h"
#include "grapnel/dist/mpi_rounds.h"

namespace grapnel::dist {

class MpiEngine final : public detail::Driver {
 public:
  /// Connects; throws what the transport throws then.
  MpiEngine(MpiTransport& transport, const MpiOptions& options);
  /// Shut down before it dies, unless the program ends.
  ~MpiEngine() = default;

  /// Hands over an operation. Failures go to its future.
  void post(PostedPtr posted);
  void close(MpiTransport::Line line, FatePtr fate);
  MpiLedger& ledger() { return ledger_; }
  MpiTransport& transport() { return transport_; }
  const std::shared_ptr<Executor>& executor() const { return executor_; }

  void came_to_wait() override;
  void drive(const detail::FutureState& until) override;

  /// The program is about to end without MPI_Finalize, on this thread: the other ranks are told,
  /// and that is waited for a moment.
  void last_words(const std::string& text) noexcept;
  /// At the end of the program. After a timeout a rank may be gone, and MPI_Finalize would wait for
  /// it: then MPI is left as it is.
  void shut_down();

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Who { thread, waiter };

  void communicate(const Future<Done>& connected);
  /// Ends MPI, unless a rank may be gone. For those who have the turn.
  void disconnect();
  /// Sleeps until there is something to do, or to look at. With the lock held.
  void nap(Lock& lock);
  bool step(Who who);
  bool is_stopping();
  bool drove_recently(Clock::time_point now) const;

  const base::HomeProcess home_;
  MpiTransport& transport_;
  std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  std::mutex mutex_;
  std::condition_variable changed_;
  MpiRounds::Work work_;  ///< for the next round
  std::atomic<bool> has_work_{false};
  bool stopping_ = false, stopped_ = false;
  bool in_long_nap_ = false;    ///< the communication thread
  bool driving_ = false;        ///< a thread that waits
  bool needed_ = false;         ///< by a thread that drove: it left something under way
  bool waits_at_once_ = false;  ///< the last collective was driven by the thread that waited for it
  Clock::time_point last_drive_{}, last_post_{};
  MpiLedger ledger_;
  // Of whoever has the turn:
  std::mutex turn_;
  bool blocked_ = false;  ///< what comes next may block
  MpiRounds rounds_;

  std::function<void()> progress_;  ///< where there is no communication thread
  std::thread thread_;
};

}  // namespace grapnel::dist
