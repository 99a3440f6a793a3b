/// Processes as ranks: a thread that makes all calls of MPI and polls what is under way, and one
/// that minds the deadlines.
///
/// Note [Who calls MPI]
/// The communication thread initialises MPI and makes every call after that, so any level of thread
/// support will do. If the program has initialised MPI itself below MPI_THREAD_SERIALIZED, there is
/// no such thread: progress is then made inside waits of the thread that called dist::init().
/// Deadlines are minded by a thread of their own, which calls nothing of MPI, so they hold even if
/// MPI blocks.
///
/// Calls are made one at a time, by whoever has the turn. A thread that begins to wait takes it for
/// a moment, if it is free: a short collective is then complete before the communication thread
/// would have woken up. It makes no call that may block, and leaves long ones to the communication
/// thread, so deadlines hold for it, too.
#include "grapnel/dist/communicator_mpi.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "grapnel/base/module_file.h"
#include "grapnel/dist/mpi/transport.h"

namespace grapnel::dist {

namespace {

constexpr std::chrono::microseconds kMovesData{
    2};                     ///< a round of polling takes longer only if it copies something
constexpr int kSpins = 20;  ///< rounds of polling without a nap
/// How long a waiting thread drives, and keeps a core; sums of a megabyte end within it.
constexpr std::chrono::microseconds kMoment{500};
/// Who comes to wait so soon after a call waits for it at once.
constexpr std::chrono::microseconds kAtOnce{50};
/// How long it tries to take over from the communication thread first.
constexpr std::chrono::microseconds kHandOver{20};
constexpr std::chrono::milliseconds kRecently{5};

using Line = MpiTransport::Line;
using Ticket = MpiTransport::Ticket;

/// What groups share that were made from one another: if one fails, all do.
struct Fate {
  std::string id;
  std::exception_ptr failure;
  std::string text;
};
using FatePtr = std::shared_ptr<Fate>;

/// An operation and how to carry it out. Both functions run on the communication thread.
struct Posted {
  OperationPtr op;
  FatePtr fate;
  std::string group;
  Line line = MpiTransport::kNone;
  std::function<Ticket()> start;
  std::function<void()> finish;  ///< when the ticket is complete; may be empty
  bool may_block = false;
  /// Nobody was woken for it: its caller was expected to wait for it at once.
  bool trusted = false;
};
using PostedPtr = std::shared_ptr<Posted>;

/// A call as it travels, to be compared.
struct Fingerprint {
  Call call;
  uint64_t sequence = 0;
};
static_assert(std::is_trivially_copyable_v<Fingerprint>);

class Engine final : public detail::Driver {
 public:
  Engine(MpiTransport* transport, const MpiOptions& options)
      : transport_(transport), options_(options) {
    if (options.largest_count > 0) transport_->set_largest_count(options.largest_count);
    executor_ = std::make_shared<Executor>();
    if (transport_->allows_thread()) {
      auto connected = Future<Done>::make();
      thread_ = std::thread([this, connected] { communicate(connected); });
      try {
        connected.wait();
      } catch (...) {
        thread_.join();
        throw;
      }
      if (transport_->allows_any_thread()) detail::driver.store(this, std::memory_order_release);
    } else {
      transport_->connect();
      progress_ = [this] {
        if (!step(Who::thread)) std::this_thread::yield();
      };
      detail::progress_while_waiting = &progress_;
    }
    watchdog_ = std::thread([this] { mind_deadlines(); });
  }

  void post(PostedPtr posted) {
    std::unique_lock lock(mutex_);
    if (posted->fate->failure) {
      lock.unlock();
      return posted->op->done.set_error(std::make_exception_ptr(CommAborted(str(
          describe(*posted), ", was refused, because the group was given up: ", posted->fate->text,
          "\nAll ranks can make another with ProcessGroup::renew()."))));
    }
    // Not while the communication thread is in a long nap: should the caller not wait after all,
    // it would be the end of the nap before anything begins.
    posted->trusted = !posted->may_block && waits_at_once_ && drove_recently() && !in_long_nap_;
    last_post_ = Clock::now();
    const bool wake = !posted->trusted;
    pending_.insert({posted->op->deadline, posted});
    commands_.push_back(std::move(posted));
    if (wake) changed_.notify_all();
  }

  // The communication thread may be so fast that nobody ever finds anything to drive. Callers who
  // wait at once are still served better by themselves, without waking it.
  void came_to_wait() override {
    const Lock lock(mutex_);
    const auto now = Clock::now();
    if (now - last_post_ > kAtOnce) return;
    waits_at_once_ = true;
    last_drive_ = now;
  }

  void drive(const detail::FutureState& until) override {
    std::unique_lock turn(turn_, std::try_to_lock);
    // The communication thread has the turn round by round; between two of them it can be had.
    for (const auto end = Clock::now() + kHandOver; !turn && Clock::now() < end;) {
      if (until.done()) return;
      turn = std::unique_lock(turn_, std::try_to_lock);
    }
    if (Lock lock(mutex_);
        !turn || std::any_of(pending_.begin(), pending_.end(),
                             [](const auto& p) { return p.second->may_block; })) {
      needed_ = true;
      return changed_.notify_all();
    }
    const Clock::time_point end = Clock::now() + kMoment;
    bool done = until.done();
    for (; !done && !blocked_; done = until.done()) {
      if (step(Who::waiter)) continue;
      if (Clock::now() > end) break;
    }
    const bool rest = blocked_ || !active_.empty();
    turn.unlock();
    Lock lock(mutex_);
    waits_at_once_ = done;
    last_drive_ = Clock::now();
    if (rest || !commands_.empty() || !notes_.empty()) {
      needed_ = true;
      changed_.notify_all();
    }
  }

  /// Ends a line, as soon as nothing is under way on it. After a failure something may be for good;
  /// then it stays.
  void close(Line line, const FatePtr& fate) {
    std::lock_guard lock(mutex_);
    closing_.push_back({line, fate});
  }
  int open_lines() const { return transport_->open_lines(); }

  FatePtr fate(const std::string& id) {
    std::lock_guard lock(mutex_);
    return fate_locked(id);
  }
  void fail(const FatePtr& fate, std::exception_ptr why, const std::string& text, bool tell) {
    std::unique_lock lock(mutex_);
    fail(fate, std::move(why), text, tell, lock);
  }
  bool failed(const FatePtr& fate) {
    std::lock_guard lock(mutex_);
    return fate->failure != nullptr;
  }
  MpiTransport& transport() { return *transport_; }
  const MpiOptions& options() const { return options_; }
  const std::shared_ptr<Executor>& executor() const { return executor_; }

  /// At the end of the program. After a timeout a rank may be gone, and MPI_Finalize would wait for
  /// it: then MPI is left as it is.
  void shut_down() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    deadlines_.notify_all();
    if (!thread_.joinable()) {
      if (!timed_out_) transport_->disconnect();
    } else if (changed_.wait_for(lock, std::chrono::seconds(timed_out_ ? 1 : 60),
                                 [&] { return stopped_; })) {
      lock.unlock();
      thread_.join();
      lock.lock();
    } else {
      thread_.detach();
    }
    lock.unlock();
    watchdog_.join();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Active {
    Ticket ticket;
    PostedPtr posted;
    std::function<void()> done;
  };

  FatePtr fate_locked(const std::string& id) {
    FatePtr& f = fates_[id];
    if (!f) {
      f = std::make_shared<Fate>();
      f->id = id;
    }
    return f;
  }
  static std::string describe(const Posted& p) {
    return str(p.op->call.str(), ", number ", p.op->sequence, " of group '", p.group, "'");
  }

  void fail(const FatePtr& fate, std::exception_ptr why, const std::string& text, bool tell,
            Lock& lock) {
    if (fate->failure) return;
    fate->failure = why;
    fate->text = text;
    std::vector<PostedPtr> failed;
    for (auto it = pending_.begin(); it != pending_.end();) {
      if (it->second->fate == fate) {
        failed.push_back(it->second);
        it = pending_.erase(it);
      } else {
        ++it;
      }
    }
    if (tell) notes_.push_back(fate->id + "\n" + text);
    changed_.notify_all();
    lock.unlock();
    for (const PostedPtr& p : failed) p->op->done.set_error(why);
    lock.lock();
  }

  // --- the communication thread ---

  void communicate(const Future<Done>& connected) {
    try {
      transport_->connect();
      connected.set_result(Done());
    } catch (...) {
      return connected.set_error(std::current_exception());
    }
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
      const bool nothing_to_poll = !turn || active_.empty();
      if (turn) turn.unlock();
      // MPI moves long messages in pieces, inside the calls that ask whether they are complete: a
      // call that took its time has moved one, and the next is not far.
      const bool moves_data = Clock::now() - begin > kMovesData;
      Lock lock(mutex_);
      if (stopping_ && commands_.empty() && notes_.empty()) break;
      if (nothing_to_poll) {
        // Notes of other ranks have to be seen, too, but there is no hurry; more so if somebody may
        // have been trusted in vain.
        in_long_nap_ = !drove_recently();
        const auto nap =
            in_long_nap_ ? std::chrono::milliseconds(20) : std::chrono::microseconds(500);
        changed_.wait_for(lock, nap, [&] {
          return stopping_ || needed_ || !notes_.empty() ||
                 std::any_of(commands_.begin(), commands_.end(),
                             [](const PostedPtr& p) { return !p->trusted; });
        });
        in_long_nap_ = false;
        continue;
      }
      lock.unlock();
      if (moves_data) {
        idle_rounds = 0;
        continue;
      }
      // Polling takes time from the threads that compute, so it backs off, unless one of them waits
      // for the result anyway. A thread that naps is woken at once, ahead of those that compute;
      // one that only yields would wait for them to use up their time.
      if (detail::waiting_threads.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
      else if (++idle_rounds > kSpins)
        std::this_thread::sleep_for(
            std::chrono::microseconds(std::min(5 + (idle_rounds - kSpins) / 8, 100)));
    }
    detail::driver.store(nullptr, std::memory_order_release);
    const std::lock_guard turn(turn_);
    // What is left under way belongs to groups that failed; with all ranks alive MPI can still be
    // ended.
    if (!timed_out_) transport_->disconnect();
    Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  enum class Who { thread, waiter };

  /// One round: begins what was posted, looks at what is under way. True if anything happened. The
  /// caller has the turn.
  bool step(Who who) {
    bool moved = false;
    Lock lock(mutex_);
    blocked_ = who == Who::waiter && std::any_of(commands_.begin(), commands_.end(),
                                                 [](const PostedPtr& p) { return p->may_block; });
    if (blocked_) return false;
    std::deque<PostedPtr> fresh = std::exchange(commands_, {});
    std::deque<std::string> notes = std::exchange(notes_, {});
    const std::vector<Closing> closing = std::exchange(closing_, {});
    if (who == Who::thread) {
      needed_ = false;
      for (const PostedPtr& posted : fresh) waits_at_once_ &= !posted->trusted;
    }
    lock.unlock();
    for (const std::string& note : notes) transport_->send_note(note.c_str());
    for (PostedPtr& posted : fresh) {
      moved = true;
      // A group that is being renewed has no line yet on which to compare.
      if (options_.check_calls && posted->line != MpiTransport::kNone &&
          !posted->op->call.is_point_to_point())
        enqueue_checked(std::move(posted));
      else begin(std::move(posted));
    }
    for (size_t i = 0; i < active_.size();) {
      const auto take = [&] {
        Active taken = std::move(active_[i]);
        active_.erase(active_.begin() + static_cast<int64_t>(i));
        return taken;
      };
      try {
        if (!transport_->test(active_[i].ticket)) {
          ++i;
          continue;
        }
      } catch (const std::exception& e) {
        const PostedPtr posted = active_[i].posted;
        lost_.push_back(take());
        broken(posted, e);
        continue;
      }
      moved = true;
      const Active finished = take();
      try {
        finished.done();
      } catch (const std::exception& e) {
        broken(finished.posted, e);
      }
    }
    while (const char* note = transport_->next_note()) heard_.push_back({note, Clock::now(), 0});
    if (!heard_.empty()) act_on_notes();
    to_close_.insert(to_close_.end(), closing.begin(), closing.end());
    if (!to_close_.empty()) close_idle_lines();
    return moved;
  }

  void close_idle_lines() {
    std::erase_if(to_close_, [&](const Closing& c) {
      if (failed(c.fate)) return true;
      const auto queue = unchecked_.find(c.line);
      const bool queued = queue != unchecked_.end() && !queue->second.empty();
      if (queued || std::any_of(active_.begin(), active_.end(),
                                [&](const Active& a) { return a.posted->line == c.line; }))
        return false;
      transport_->close(c.line);
      return true;
    });
  }
  /// With the lock held.
  bool drove_recently() const { return Clock::now() - last_drive_ < kRecently; }

  // A rank that gives up has completed everything it did before; so may this one. What is under way
  // gets a few rounds to arrive.
  void act_on_notes() {
    Heard& first = heard_.front();
    ++first.rounds;
    if (!active_.empty() &&
        (first.rounds < 50 || Clock::now() - first.since < std::chrono::milliseconds(20)))
      return;
    const std::string text = std::move(first.text);
    heard_.pop_front();
    hear(text);
  }

  void begin(PostedPtr posted) {
    try {
      const Ticket ticket = posted->start();
      active_.push_back({ticket, posted, [this, posted] {
                           if (posted->finish) posted->finish();
                           complete(posted);
                         }});
    } catch (const std::exception& e) {
      lost_.push_back({0, posted, nullptr});
      broken(posted, e);
    }
  }

  void complete(const PostedPtr& posted) {
    if (forget(*posted)) posted->op->done.set_result(std::move(posted->op->result));
  }
  /// False if the operation has failed before.
  bool forget(const Posted& posted) {
    std::lock_guard lock(mutex_);
    const auto [begin, end] = pending_.equal_range(posted.op->deadline);
    for (auto it = begin; it != end; ++it)
      if (it->second.get() == &posted) {
        pending_.erase(it);
        return true;
      }
    return false;
  }
  void broken(const PostedPtr& posted, const std::exception& e) {
    const std::string text = str(describe(*posted), ", failed: ", e.what());
    fail(posted->fate, std::make_exception_ptr(CommAborted(text)), text, true);
  }
  void hear(const std::string& note) {
    const size_t end = note.find('\n');
    const std::string text = note.substr(end + 1);
    Lock lock(mutex_);
    fail(fate_locked(note.substr(0, end)), std::make_exception_ptr(CommAborted(text)), text, false,
         lock);
  }

  // With checks, a line's next call is compared only after the one before has begun: the ranks see
  // the same order.
  void enqueue_checked(PostedPtr posted) {
    auto& queue = unchecked_[posted->line];
    queue.push_back(std::move(posted));
    if (queue.size() == 1) compare_next(queue);
  }
  void compare_next(std::deque<PostedPtr>& queue) {
    const PostedPtr posted = queue.front();
    auto mine = std::make_shared<Fingerprint>(Fingerprint{posted->op->call, posted->op->sequence});
    auto all = std::make_shared<std::vector<Fingerprint>>(
        static_cast<size_t>(transport_->size(posted->line)));
    const Call exchange{
        .kind = CallKind::all_gather, .dtype = DType::UInt8, .count = sizeof(Fingerprint)};
    Ticket ticket = 0;
    try {
      ticket = transport_->start(posted->line, {exchange, mine.get(), all->data()});
    } catch (const std::exception& e) {
      lost_.push_back({ticket, posted, [mine, all] {}});
      queue.clear();  // of one group, so all have failed with this one
      return broken(posted, e);
    }
    active_.push_back({ticket, posted, [this, posted, mine, all, &queue] {
                         bool same = true;
                         for (size_t r = 0; r < all->size() && same; ++r) {
                           same = (*all)[r].call == (*all)[0].call;
                           if (!same) report_difference(*posted, (*all)[0], (*all)[r], r);
                         }
                         if (same) begin(posted);
                         queue.pop_front();
                         if (!queue.empty()) compare_next(queue);
                       }});
  }
  void report_difference(const Posted& posted, const Fingerprint& first, const Fingerprint& other,
                         size_t rank) {
    const std::string text =
        str("the ranks of group '", posted.group, "' called different collectives as number ",
            posted.op->sequence, ": rank 0 called ", first.call.str(), ", rank ", rank, " called ",
            other.call.str(), ".\nAll ranks must call the same collectives in the same order.");
    fail(posted.fate, std::make_exception_ptr(CommMismatch(text)), text, false);
  }

  // --- the watchdog ---

  void mind_deadlines() {
    Lock lock(mutex_);
    while (!stopping_) {
      if (pending_.empty()) {
        deadlines_.wait_for(lock, std::chrono::milliseconds(100));
        continue;
      }
      const auto [deadline, posted] = *pending_.begin();
      if (Clock::now() < deadline) {
        deadlines_.wait_until(lock,
                              std::min(deadline, Clock::now() + std::chrono::milliseconds(100)));
        continue;
      }
      timed_out_ = true;
      const std::string text =
          str(describe(*posted), ", was not complete after ", posted->op->timeout.count(),
              " ms.\nA rank has ended, is stuck or does something else; if it is only slow, set a "
              "longer timeout.");
      fail(posted->fate, std::make_exception_ptr(CommTimeout(text)), text, true, lock);
    }
  }

  MpiTransport* const transport_;
  const MpiOptions options_;
  std::shared_ptr<Executor> executor_;
  std::mutex mutex_;
  std::condition_variable changed_, deadlines_;
  std::deque<PostedPtr> commands_;
  std::deque<std::string> notes_;
  std::multimap<Clock::time_point, PostedPtr> pending_;
  std::map<std::string, FatePtr> fates_;
  struct Closing {
    Line line;
    FatePtr fate;
  };
  std::vector<Closing> closing_;
  std::atomic<bool> timed_out_{false};
  bool stopping_ = false, stopped_ = false;
  bool in_long_nap_ = false;    ///< the communication thread
  bool needed_ = false;         ///< by a thread that drove: it left something under way
  bool waits_at_once_ = false;  ///< the last collective was driven by the thread that waited for it
  Clock::time_point last_drive_{}, last_post_{};
  // Of whoever has the turn:
  std::mutex turn_;
  bool blocked_ = false;  ///< what comes next may block
  std::vector<Closing> to_close_;
  struct Heard {
    std::string text;
    Clock::time_point since;
    int rounds;
  };
  std::deque<Heard> heard_;
  std::vector<Active> active_;
  /// What MPI failed at. Parts of it may still be under way and write to its memory, so that is
  /// kept for good.
  std::vector<Active> lost_;
  std::map<Line, std::deque<PostedPtr>> unchecked_;
  std::function<void()> progress_;
  std::thread thread_, watchdog_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(Engine& engine, FatePtr fate, Line line, std::string name, int rank,
                  std::vector<int> world)
      : engine_(engine),
        fate_(std::move(fate)),
        line_(line),
        name_(std::move(name)),
        rank_(rank),
        world_(std::move(world)) {}

  ~MpiCommunicator() override {
    if (line_ != MpiTransport::kWorld) engine_.close(line_, fate_);
  }

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_.size()); }

  void submit(OperationPtr op) override {
    // Looked at here, since whoever begins the operation may be recording something of its own.
    MpiOperation operation{op->call, nullptr, nullptr};
    try {
      if (op->input.defined()) operation.input = op->input.data_ptr();
      if (op->output.defined()) operation.output = op->output.data_ptr();
    } catch (...) {
      return op->done.set_error(std::current_exception());
    }
    auto posted = make_posted(std::move(op));
    posted->start = [operation, line = line_, &transport = engine_.transport()] {
      return transport.start(line, operation);
    };
    engine_.post(std::move(posted));
  }

  std::shared_ptr<Communicator> split(const std::vector<int>& ranks,
                                      const std::string& name) override {
    const bool all = std::is_sorted(ranks.begin(), ranks.end()) && ranks.size() == world_.size();
    auto made = std::make_shared<Line>(MpiTransport::kNone);
    run([&](Posted& p) {
      MpiTransport& transport = engine_.transport();
      if (all) {
        p.start = [&transport, line = line_, made] {
          return transport.start_duplicate(line, made.get());
        };
        return;
      }
      // Splitting blocks, so first make sure that everybody has come to it.
      p.start = [&transport, line = line_] {
        return transport.start(line, {{.kind = CallKind::barrier}, nullptr, nullptr});
      };
      p.finish = [&transport, line = line_, made, ranks] {
        *made = transport.split(line, ranks.data(), static_cast<int>(ranks.size()));
      };
    });
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) return nullptr;
    std::vector<int> world;
    for (int r : ranks) world.push_back(world_[static_cast<size_t>(r)]);
    return std::make_shared<MpiCommunicator>(engine_, fate_, *made, name_ + "/" + name,
                                             static_cast<int>(own - ranks.begin()),
                                             std::move(world));
  }

  std::shared_ptr<Communicator> renew() override {
    // The same on all ranks of the group, and short enough for a note.
    std::string about = str(fate_->id, " ", name_, " ", renewals_++);
    for (int r : world_) about += str(" ", r);
    const std::string id = std::to_string(std::hash<std::string>()(about));
    const FatePtr fresh = engine_.fate(id);
    auto made = std::make_shared<Line>(MpiTransport::kNone);
    const int number = static_cast<int>(std::hash<std::string>()(id) % 32768);
    run([&](Posted& p) {
      p.fate = fresh;
      p.line = MpiTransport::kNone;
      p.start = [&transport = engine_.transport(), world = world_, number, made] {
        *made = transport.create(world.data(), static_cast<int>(world.size()), number);
        return Ticket{0};
      };
    });
    return std::make_shared<MpiCommunicator>(engine_, fresh, *made, name_, rank_, world_);
  }

  void abort(const std::string& reason) override {
    const std::string text = str("rank ", rank_, " gave up group '", name_, "': ", reason);
    engine_.fail(fate_, std::make_exception_ptr(CommAborted(text)), text, true);
  }
  bool aborted() const override { return engine_.failed(fate_); }
  const std::shared_ptr<Executor>& executor() const override { return engine_.executor(); }
  uint64_t machine() const override {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    return std::hash<std::string>()(host) >> 1;
  }

 private:
  std::shared_ptr<Posted> make_posted(OperationPtr op) const {
    auto posted = std::make_shared<Posted>();
    posted->op = std::move(op);
    posted->fate = fate_;
    posted->group = name_;
    posted->line = line_;
    return posted;
  }
  /// Makes a line, and waits for it.
  void run(const std::function<void(Posted&)>& fill) const {
    auto op = std::make_shared<Operation>();
    op->call.kind = CallKind::split;
    op->timeout = std::chrono::minutes(5);
    op->deadline = Clock::now() + op->timeout;
    op->done = Future<std::vector<Tensor>>::make(engine_.executor());
    auto posted = make_posted(op);
    posted->may_block = true;
    fill(*posted);
    engine_.post(std::move(posted));
    op->done.wait();
  }

  Engine& engine_;
  FatePtr fate_;
  Line line_;
  std::string name_;
  int rank_;
  std::vector<int> world_;
  std::atomic<uint64_t> renewals_{0};
};

Engine* the_engine = nullptr;

}  // namespace

std::shared_ptr<Communicator> connect_mpi(const MpiOptions& options) {
  // Never destroyed: the end of the program comes in its own way, see Engine::shut_down.
  static const std::string problem = [&]() -> std::string {
    const base::LoadedModule module =
        base::load_module("libgrapnel_mpi.so", "GRAPNEL_MPI_LIBRARY", kMpiTransportSymbol);
    if (!module.symbol)
      return str("MPI's module libgrapnel_mpi.so could not be loaded:\n", module.problem,
                 "Build Grapnel with Open MPI (on Debian: apt-get install libopenmpi-dev), put the "
                 "file beside libgrapnel, or set GRAPNEL_MPI_LIBRARY to its path.");
    MpiTransport* transport = reinterpret_cast<MpiTransportFn>(module.symbol)(kMpiTransportVersion);
    if (!transport) return "libgrapnel_mpi.so is of another version of Grapnel.";
    the_engine = new Engine(transport, options);
    std::atexit([] { the_engine->shut_down(); });
    return "";
  }();
  check(the_engine != nullptr, problem);
  MpiTransport& transport = the_engine->transport();
  std::vector<int> world(static_cast<size_t>(transport.size(MpiTransport::kWorld)));
  for (size_t r = 0; r < world.size(); ++r) world[r] = static_cast<int>(r);
  return std::make_shared<MpiCommunicator>(*the_engine, the_engine->fate("world"),
                                           MpiTransport::kWorld, "world",
                                           transport.rank(MpiTransport::kWorld), std::move(world));
}

int open_mpi_lines() { return the_engine ? the_engine->open_lines() : 0; }

}  // namespace grapnel::dist
