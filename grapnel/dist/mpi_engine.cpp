#include "grapnel/dist/mpi_engine.h"

#include <sys/prctl.h>

#include <algorithm>
#include <ctime>


namespace grapnel::dist {

namespace {
/// A round of polling takes longer only if it copies something.
constexpr std::chrono::microseconds kMovesData{2};
/// Even in a build without optimisation it takes that long only if it copies a lot.
constexpr std::chrono::microseconds kCopies{20};
constexpr int kSpins = 20;  ///< rounds of polling without a nap
/// How long a waiting thread drives, and keeps a core, when nothing is copied.
constexpr std::chrono::microseconds kMoment{500};
/// Who comes to wait so soon after a call waits for it at once.
constexpr std::chrono::microseconds kAtOnce{50};
/// How long it tries to take over from the communication thread first.
constexpr std::chrono::microseconds kHandOver{20};
constexpr std::chrono::milliseconds kRecently{5};
/// From a rank's giving up to its last words, if it then ends by the exception that it gave up for.
constexpr std::chrono::milliseconds kLastWords{500};

/// How long this thread has had a core.
std::chrono::nanoseconds core_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}
}  // namespace

MpiEngine::MpiEngine(MpiTransport& transport, const MpiOptions& options)
    : transport_(transport),
      ledger_([this](std::string note) {
        const Lock lock(mutex_);
        work_.notes.push_back(std::move(note));
        has_work_.store(true, std::memory_order_relaxed);
        changed_.notify_all();
      }),
      rounds_(transport, ledger_, options.check_calls) {
  if (options.largest_count > 0) transport_.set_largest_count(options.largest_count);
  if (options.apart) transport_.set_apart();
  if (!transport_.allows_thread()) {
    transport_.connect();
    progress_ = [this] {
      if (!step(Who::thread)) std::this_thread::yield();
    };
    detail::progress_while_waiting = &progress_;
    return;
  }
  auto connected = Future<Done>::make();
  thread_ = base::start_thread([this, connected] { communicate(connected); });
  try {
    connected.wait();
  } catch (...) {
    thread_.join();
    throw;
  }
  if (transport_.allows_any_thread()) detail::driver.store(this, std::memory_order_release);
}

void MpiEngine::shut_down() {
  if (home_.is_elsewhere()) return;  // a child by fork; MPI is its parent's
  ledger_.stop();
  Lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  if (detail::progress_while_waiting == &progress_) detail::progress_while_waiting = nullptr;
  if (!thread_.joinable()) {
    lock.unlock();
    disconnect();
  } else if (changed_.wait_for(lock, std::chrono::seconds(ledger_.timed_out() ? 1 : 60),
                               [&] { return stopped_; })) {
    lock.unlock();
    thread_.join();
  } else {
    thread_.detach();
  }
}

void MpiEngine::last_words(const std::string& text) noexcept {
  if (home_.is_elsewhere()) return;  // a child by fork; MPI is its parent's
  // Whatever this thread was doing, it may hold a lock; so nothing here waits for long.
  const auto until = Clock::now() + std::chrono::milliseconds(500);
  const auto in_time = [&](std::mutex& mutex) {
    Lock lock(mutex, std::try_to_lock);
    while (!lock && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)lock.try_lock();
    }
    return lock;
  };
  try {
    if (thread_.joinable() && thread_.get_id() == std::this_thread::get_id()) return;
    if (Lock lock = in_time(mutex_)) {
      work_.notes.push_back(MpiLedger::last_words(text));
      has_work_.store(true, std::memory_order_relaxed);
      changed_.notify_all();
    }
    while (has_work_.load(std::memory_order_relaxed) && Clock::now() < until) {
      if (!thread_.joinable() && detail::progress_while_waiting) progress_();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // The round that took the note sends it, and a few more move it along.
    if (const Lock turn = in_time(turn_); turn && transport_.allows_any_thread())
      for (int i = 0; i < 100; ++i) rounds_.round({});
    else std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } catch (...) {
    // There is nothing left to do.
  }
}

bool MpiEngine::is_stopping() {
  const Lock lock(mutex_);
  return stopping_;
}

void MpiEngine::post(PostedPtr posted) {
  if (is_stopping())
    return posted->op->done.set_error(std::make_exception_ptr(
        CommAborted(str(posted->describe(),
                        ", was refused: the program is ending, and MPI has been shut "
                        "down.\nCommunicate before main() returns."))));
  if (!ledger_.enter(posted)) return;
  const Lock lock(mutex_);
  last_post_ = Clock::now();
  // Not while the communication thread is in a long nap: should the caller not wait after all, it
  // would be the end of the nap before anything begins.
  posted->trusted =
      !posted->may_block && waits_at_once_ && drove_recently(last_post_) && !in_long_nap_;
  const bool wake = !posted->trusted;
  work_.posted.push_back(std::move(posted));
  has_work_.store(true, std::memory_order_relaxed);
  if (wake) changed_.notify_all();
}

void MpiEngine::close(MpiTransport::Line line, FatePtr fate) {
  const Lock lock(mutex_);
  work_.closing.push_back({line, std::move(fate)});
  has_work_.store(true, std::memory_order_relaxed);
}

/// With the lock held.
bool MpiEngine::drove_recently(Clock::time_point now) const {
  return now - last_drive_ < kRecently;
}

// --- threads that wait ---

// The communication thread may be so fast that nobody ever finds anything to drive. Callers who
// wait at once are still served better by themselves, without waking it.
void MpiEngine::came_to_wait() {
  const Lock lock(mutex_);
  const auto now = Clock::now();
  if (now - last_post_ > kAtOnce) return;
  waits_at_once_ = true;
  last_drive_ = now;
}

void MpiEngine::drive(const detail::FutureState& until) {
  std::unique_lock turn(turn_, std::try_to_lock);
  // The communication thread has the turn round by round; between two of them it can be had.
  if (!turn)
    for (const auto end = Clock::now() + kHandOver; !turn && Clock::now() < end;) {
      if (until.done()) return;
      turn = std::unique_lock(turn_, std::try_to_lock);
    }
  if (!turn || ledger_.any_may_block()) {
    const Lock lock(mutex_);
    needed_ = true;
    return changed_.notify_all();
  }
  {
    const Lock lock(mutex_);
    driving_ = true;
  }
  Clock::time_point before = Clock::now(), end = before + kMoment;
  bool done = until.done();
  Clock::time_point last_copy{};
  std::chrono::nanoseconds core_then{};
  for (; !done && !blocked_ && before < end; done = until.done()) {
    step(Who::waiter);
    const Clock::time_point now = Clock::now();
    if (now - before > kCopies && end - now < kMoment / 2) {
      // It goes on while it copies, but not if rounds are long because other threads have the core:
      // they may compute what this one waits for.
      const auto core = core_time();
      if (core - core_then > (now - last_copy) / 2 || last_copy == Clock::time_point())
        end = now + kMoment;
      last_copy = now;
      core_then = core;
    }
    before = now;
  }
  const bool rest = blocked_ || !rounds_.idle();
  turn.unlock();
  const Lock lock(mutex_);
  driving_ = false;
  waits_at_once_ = done;
  last_drive_ = before;
  if (rest || !work_.posted.empty() || !work_.notes.empty()) {
    needed_ = true;
    changed_.notify_all();
  }
}

// --- the communication thread ---

void MpiEngine::communicate(const Future<Done>& connected) {
  try {
    transport_.connect();
  } catch (...) {
    return connected.set_error(std::current_exception());
  }
  connected.set_result(Done());
  // Naps are of microseconds; the kernel may round them up to fifty more unless told not to.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  int idle_rounds = 0;
  while (true) {
    const Clock::time_point begin = Clock::now();
    std::unique_lock turn(turn_, std::try_to_lock);
    if (turn && step(Who::thread)) {
      idle_rounds = 0;
      continue;
    }
    const bool nothing_to_poll = !turn || rounds_.idle();
    if (turn) turn.unlock();
    // MPI moves long messages in pieces, inside the calls that ask whether they are complete: a
    // call that took its time has moved one, and the next is not far.
    const bool moves_data = Clock::now() - begin > kMovesData;
    Lock lock(mutex_);
    if (stopping_ && work_.posted.empty() && work_.notes.empty()) break;
    if (nothing_to_poll) {
      nap(lock);
      continue;
    }
    lock.unlock();
    if (moves_data) {
      idle_rounds = 0;
      continue;
    }
    // Polling takes time from the threads that compute, so it backs off, unless one of them waits
    // for the result anyway. A thread that naps is woken at once, ahead of those that compute; one
    // that only yields would wait for them to use up their time.
    if (detail::waiting_threads.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
    else if (++idle_rounds > kSpins)
      std::this_thread::sleep_for(
          std::chrono::microseconds(std::min(5 + (idle_rounds - kSpins) / 8, 100)));
  }
  detail::Driver* self = this;
  detail::driver.compare_exchange_strong(self, nullptr);
  const std::lock_guard turn(turn_);
  disconnect();
  const Lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void MpiEngine::disconnect() {
  // A rank that has given up may be about to end by its exception, without MPI_Finalize, which
  // would wait for it. Its last words follow at once.
  for (const auto until = ledger_.heard() + kLastWords;
       !ledger_.timed_out() && Clock::now() < until;) {
    rounds_.round({});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // What is left under way belongs to groups that failed; with all ranks alive MPI can still be
  // ended.
  if (!ledger_.timed_out()) transport_.disconnect();
}

void MpiEngine::nap(Lock& lock) {
  // Notes of other ranks have to be seen, too, but there is no hurry; more so if somebody may have
  // been trusted in vain.
  in_long_nap_ = !drove_recently(Clock::now());
  const auto time = in_long_nap_ ? std::chrono::milliseconds(20) : std::chrono::microseconds(500);
  changed_.wait_for(lock, time, [&] {
    if (stopping_) return true;
    if (driving_) return false;  // It takes what comes up, and says at its end what is left.
    return needed_ || !work_.notes.empty() ||
           std::any_of(work_.posted.begin(), work_.posted.end(),
                       [](const PostedPtr& p) { return !p->trusted; });
  });
  in_long_nap_ = false;
}

/// One round, with what was posted since the last. True if anything happened. The caller has the
/// turn.
bool MpiEngine::step(Who who) {
  MpiRounds::Work work;
  // Who waits polls without the lock; what somebody else posts meanwhile is seen a little later.
  if (who == Who::thread || has_work_.load(std::memory_order_relaxed)) {
    const Lock lock(mutex_);
    blocked_ = who == Who::waiter && std::any_of(work_.posted.begin(), work_.posted.end(),
                                                 [](const PostedPtr& p) { return p->may_block; });
    if (blocked_) return false;
    work = std::exchange(work_, {});
    has_work_.store(false, std::memory_order_relaxed);
    if (who == Who::thread) {
      needed_ = false;
      for (const PostedPtr& posted : work.posted) waits_at_once_ &= !posted->trusted;
    }
  }
  return rounds_.round(std::move(work));
}

}  // namespace grapnel::dist
