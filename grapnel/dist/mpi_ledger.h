/// What was handed to MPI and is not complete: which groups fail together, and by when everything
/// has to be done. It makes no calls of MPI, so deadlines hold even if MPI blocks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "grapnel/dist/communicator.h"
#include "grapnel/dist/mpi/transport.h"

namespace grapnel::dist {

/// What groups share that were made from one another: if one fails, all do. The ledger's to change.
struct Fate {
  std::string id;
  std::exception_ptr failure;
  std::string text;
};
using FatePtr = std::shared_ptr<Fate>;

/// An operation and how to carry it out.
struct Posted {
  OperationPtr op;
  FatePtr fate;
  std::string group;
  MpiTransport::Line line = MpiTransport::kNone;
  MpiOperation operation;
  std::function<MpiTransport::Ticket()> start;  ///< instead of the operation, for making lines
  std::function<void()> finish;                 ///< when the ticket is complete; may be empty
  bool may_block = false;                       ///< in `start` or `finish`
  /// Nobody was woken for it: its caller was expected to wait for it at once.
  bool trusted = false;
  /// "all_reduce(sum, f32, 100 elements), number 7 of group 'world'"
  std::string describe() const;
};
using PostedPtr = std::shared_ptr<Posted>;

class MpiLedger {
 public:
  /// `tell` takes a note for all other ranks, from any thread.
  explicit MpiLedger(std::function<void(std::string)> tell);
  ~MpiLedger() { stop(); }
  MpiLedger(const MpiLedger&) = delete;
  MpiLedger& operator=(const MpiLedger&) = delete;

  /// The fate of that name; made if there is none.
  FatePtr fate(const std::string& id);
  bool failed(const FatePtr& fate) const;

  /// False if the group has failed: then so has the operation.
  bool enter(const PostedPtr& posted);
  /// Completes an operation, unless it has failed before.
  void complete(const PostedPtr& posted);
  enum class Tell { others, nobody };
  /// Fails whatever is under way in groups of that fate, and everything to come.
  void fail(const FatePtr& fate, const std::exception_ptr& why, const std::string& text, Tell tell);
  /// Another rank has told about a failure.
  void hear(const std::string& note);
  /// The note of a rank that is about to end: all groups fail with it, those to come as well.
  static std::string last_words(const std::string& text) { return str(kEverything, "\n", text); }

  bool any_may_block() const { return may_block_.load(std::memory_order_relaxed) > 0; }
  /// Whether anything was late, here or on a rank that has told so. Then a rank may be gone.
  bool timed_out() const { return timed_out_.load(); }
  /// When another rank has told about a failure for the last time. For those who have the turn.
  Clock::time_point heard() const { return heard_; }
  /// No more deadlines.
  void stop();

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr char kEverything[] = "*";  ///< in place of a fate's id
  static constexpr char kLate = '!';          ///< before it, where something was late
  void fail(const FatePtr& fate, const std::exception_ptr& why, const std::string& text, Tell tell,
            Lock& lock);
  void mind_deadlines();

  const std::function<void(std::string)> tell_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::map<std::string, FatePtr> fates_;
  std::string lost_;  ///< what a rank said that has ended; else empty
  /// In the order of posting: what completes next is near the front.
  std::deque<PostedPtr> pending_;
  std::atomic<int> may_block_{0};  ///< how many of them
  std::atomic<bool> timed_out_{false};
  Clock::time_point heard_ = {};
  std::thread watchdog_;
};

}  // namespace grapnel::dist
