/// Ranks that are threads of this process. Start reading at ThreadFamily::post.
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "grapnel/base/threads.h"
#include "grapnel/dist/thread_collectives.h"
#include "grapnel/dist/thread_ranks.h"
#include "grapnel/functions/factories.h"

namespace grapnel::dist {

namespace {

/// The memory of a tensor without its state. That belongs to the thread that called: it may record
/// what comes after the collective while this one is under way.
Tensor memory_of(const Tensor& t) {
  return t.defined() ? from_blob(t.data_ptr(), t.sizes(), [t](void*) {}, t.options()) : Tensor();
}

/// What the ranks of one group or channel have called so far and is not complete.
struct Line {
  std::string name;
  std::vector<int> world;  ///< numbers of the ranks in the family
  /// One collective, for which not all ranks have come.
  struct Meeting {
    std::vector<OperationPtr> ops;
    size_t arrived = 0;
    int first = -1;
  };
  std::map<uint64_t, Meeting> meetings;
  /// By sender, receiver, tag.
  std::map<std::tuple<int, int, int>, std::deque<OperationPtr>> sends, recvs;
  std::map<uint64_t, std::pair<std::vector<int>, std::shared_ptr<Line>>> parts;
  std::map<uint64_t, std::shared_ptr<class ThreadFamily>> successors;
};

/// An exception of its own for each rank: whoever catches one may add to its text.
std::exception_ptr copy_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommTimeout& e) {
    return std::make_exception_ptr(e);
  } catch (const CommMismatch& e) {
    return std::make_exception_ptr(e);
  } catch (const CommAborted& e) {
    return std::make_exception_ptr(e);
  } catch (const Error& e) {
    return typeid(e) == typeid(Error) ? std::make_exception_ptr(e) : error;
  } catch (...) {
    return error;
  }
}

/// What all families of one call of run_threads share: renewed ones are of the same ranks.
class ThreadWorld {
 public:
  ThreadWorld(std::vector<std::shared_ptr<Executor>> executors, int ranks_per_machine)
      : executors_(std::move(executors)), ranks_per_machine_(ranks_per_machine) {}

  static std::shared_ptr<class ThreadFamily> make_family(const std::shared_ptr<ThreadWorld>& world);
  /// A rank has ended with an exception: nothing that it takes part in will work any more.
  void lose(const std::string& text);

  const std::shared_ptr<Executor>& executor(int world_rank) const {
    return executors_[static_cast<size_t>(world_rank)];
  }
  uint64_t machine(int world_rank) const {
    return ranks_per_machine_ > 0 ? static_cast<uint64_t>(world_rank / ranks_per_machine_) : 0;
  }

 private:
  const std::vector<std::shared_ptr<Executor>> executors_;
  const int ranks_per_machine_;
  std::mutex mutex_;
  std::string lost_;
  std::vector<std::weak_ptr<ThreadFamily>> families_;
};

/// Groups that share their fate, and the thread that works for all of them. Only the process in
/// which it was made can use it, and ends it: see Note [Threads and forks].
class ThreadFamily {
 public:
  /// Deletes it, save in a child by fork, where its thread is not.
  static void end(ThreadFamily* family) {
    if (!family->home_.is_elsewhere()) delete family;
  }
  explicit ThreadFamily(std::shared_ptr<ThreadWorld> world)
      : world_(std::move(world)), worker_(base::start_thread([this] { work(); })) {}
  ~ThreadFamily() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    worker_.join();
  }

  void post(const std::shared_ptr<Line>& at, int rank, OperationPtr op) {
    Line& line = *at;
    if (home_.is_elsewhere())
      return op->done.set_error(std::make_exception_ptr(
          CommAborted(str(describe(line, *op), ", was refused: ", kStayedBehind))));
    std::unique_lock lock(mutex_);
    if (failure_) {
      lock.unlock();
      return op->done.set_error(std::make_exception_ptr(CommAborted(refusal(line, *op))));
    }
    pending_.insert({op->deadline, {op, at}});
    if (op->call.is_point_to_point()) match_message(line, rank, op, lock);
    else match_collective(line, rank, op, lock);
  }

  void fail(std::exception_ptr why, std::string text) {
    if (home_.is_elsewhere()) return;
    std::unique_lock lock(mutex_);
    fail(std::move(why), std::move(text), lock);
  }
  void abort(const std::string& text) { fail(std::make_exception_ptr(CommAborted(text)), text); }
  bool failed() const {
    if (home_.is_elsewhere()) return true;
    std::lock_guard lock(mutex_);
    return failure_ != nullptr;
  }

  std::shared_ptr<Line> part(Line& line, uint64_t number, const std::vector<int>& ranks,
                             const std::string& name, int rank) {
    check_home();
    std::unique_lock lock(mutex_);
    auto& [wanted, made] = line.parts[number];
    if (!made) {
      wanted = ranks;
      made = std::make_shared<Line>();
      made->name = str(line.name, "/", name);
      for (int r : ranks) made->world.push_back(line.world[static_cast<size_t>(r)]);
    }
    if (wanted != ranks || made->name != str(line.name, "/", name)) {
      const std::string text =
          str("the ranks of group '", line.name, "' asked for different subgroups: rank ", rank,
              " wants '", name, "' of ", ranks.size(), " ranks, another one '", made->name, "' of ",
              wanted.size(), " ranks.\nAll ranks make the same subgroups in the same order.");
      const auto error = std::make_exception_ptr(CommMismatch(text));
      fail(error, text, lock);
      std::rethrow_exception(error);
    }
    return made;
  }
  std::shared_ptr<ThreadFamily> successor(Line& line, uint64_t number) {
    check_home();
    std::lock_guard lock(mutex_);
    auto& next = line.successors[number];
    if (!next) next = ThreadWorld::make_family(world_);
    return next;
  }
  /// The renewed form of a line, made in this family by the first rank that asks.
  std::shared_ptr<Line> root(const Line& old) {
    std::lock_guard lock(mutex_);
    if (!root_) {
      root_ = std::make_shared<Line>();
      root_->name = old.name;
      root_->world = old.world;
    }
    return root_;
  }

  const ThreadWorld& world() const { return *world_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void match_collective(Line& line, int rank, const OperationPtr& op, Lock& lock) {
    Line::Meeting& meeting = line.meetings[op->sequence];
    if (meeting.ops.empty()) meeting.ops.resize(line.world.size());
    if (meeting.first < 0) meeting.first = rank;
    const Call& first = meeting.ops[static_cast<size_t>(meeting.first)]
                            ? meeting.ops[static_cast<size_t>(meeting.first)]->call
                            : op->call;
    if (!(first == op->call)) {
      const std::string text = str(
          "the ranks of group '", line.name, "' called different collectives as number ",
          op->sequence, ": rank ", meeting.first, " called ", first.str(), ", rank ", rank, " called ",
          op->call.str(), ".\nAll ranks must call the same collectives in the same order.");
      return fail(std::make_exception_ptr(CommMismatch(text)), text, lock);
    }
    meeting.ops[static_cast<size_t>(rank)] = op;
    if (++meeting.arrived < line.world.size())
      return changed_.notify_all();  // the worker minds the deadline
    make_ready(std::move(meeting.ops));
    line.meetings.erase(op->sequence);
  }

  void match_message(Line& line, int rank, const OperationPtr& op, Lock& lock) {
    const bool sends = op->call.kind == CallKind::send;
    const std::tuple key(sends ? rank : op->call.peer, sends ? op->call.peer : rank, op->call.tag);
    auto& others = sends ? line.recvs[key] : line.sends[key];
    if (others.empty()) {
      (sends ? line.sends : line.recvs)[key].push_back(op);
      return changed_.notify_all();
    }
    const OperationPtr other = others.front();
    others.pop_front();
    if (other->call.dtype != op->call.dtype || other->call.count != op->call.count) {
      const std::string text =
          str("in group '", line.name, "' rank ", rank, " called ", op->call.str(), ", but rank ",
              op->call.peer, " called ", other->call.str(),
              ".\nBoth ends of a message need the same type and number of elements.");
      return fail(std::make_exception_ptr(CommMismatch(text)), text, lock);
    }
    make_ready(sends ? std::vector{op, other} : std::vector{other, op});
  }

  void make_ready(std::vector<OperationPtr> ops) {
    for (const OperationPtr& op : ops) forget(*op);
    ready_.push_back(std::move(ops));
    changed_.notify_all();
  }
  void forget(const Operation& op) {
    const auto [begin, end] = pending_.equal_range(op.deadline);
    for (auto it = begin; it != end; ++it)
      if (it->second.first.get() == &op) {
        pending_.erase(it);
        return;
      }
  }

  static std::string describe(const Line& line, const Operation& op) {
    return str(op.call.str(), ", number ", op.sequence, " of group '", line.name, "'");
  }
  std::string refusal(const Line& line, const Operation& op) const {
    return str(describe(line, op), ", was refused, because the group was given up: ", failure_text_,
               "\nAll ranks can make another with ProcessGroup::renew().");
  }

  void fail(std::exception_ptr why, std::string text, Lock& lock) {
    if (failure_) return;
    failure_ = why;
    failure_text_ = std::move(text);
    auto pending = std::exchange(pending_, {});
    lock.unlock();
    // What all ranks have called already is still carried out.
    for (auto& [deadline, posted] : pending) posted.first->done.set_error(copy_of(why));
    lock.lock();
  }

  void time_out(const Line& line, const Operation& op, Lock& lock) {
    std::string missing;
    if (const auto it = line.meetings.find(op.sequence);
        !op.call.is_point_to_point() && it != line.meetings.end()) {
      for (size_t r = 0; r < line.world.size(); ++r)
        if (!it->second.ops[r]) missing += str(missing.empty() ? "" : ", ", "rank ", r);
    } else {
      missing = str("rank ", op.call.peer);
    }
    const std::string text = str(describe(line, op), ", was not complete after ",
                                 op.timeout.count(), " ms: still missing is ", missing,
                                 ".\nA rank has ended, is stuck or does something else; if it is "
                                 "only slow, set a longer timeout.");
    fail(std::make_exception_ptr(CommTimeout(text)), text, lock);
  }

  void work() {
    Lock lock(mutex_);
    while (true) {
      if (!ready_.empty()) {
        auto ops = std::move(ready_.front());
        ready_.pop_front();
        lock.unlock();
        try {
          execute(ops);
          for (auto& op : ops) op->done.set_result(std::move(op->result));
        } catch (...) {
          for (auto& op : ops) op->done.set_error(copy_of(std::current_exception()));
        }
        ops.clear();
        lock.lock();
      } else if (stopping_) {
        return;
      } else if (pending_.empty()) {
        changed_.wait(lock);
      } else {
        const auto& [deadline, posted] = *pending_.begin();
        if (Clock::now() >= deadline) {
          const auto [op, line] = posted;
          time_out(*line, *op, lock);
        } else {
          const Clock::time_point until = deadline;
          changed_.wait_until(lock, until);
        }
      }
    }
  }

  static constexpr const char* kStayedBehind =
      "the group was made before this process was forked from another, where the threads of its "
      "ranks are.\nMake another group in this process.";
  void check_home() const {
    if (home_.is_elsewhere()) throw CommAborted(kStayedBehind);
  }

  const base::HomeProcess home_;
  const std::shared_ptr<ThreadWorld> world_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  /// Not all ranks are there yet.
  std::multimap<Clock::time_point, std::pair<OperationPtr, std::shared_ptr<Line>>> pending_;
  std::deque<std::vector<OperationPtr>> ready_;
  std::shared_ptr<Line> root_;
  std::exception_ptr failure_;
  std::string failure_text_;
  bool stopping_ = false;
  std::thread worker_;  // last: it uses everything above
};

std::shared_ptr<ThreadFamily> ThreadWorld::make_family(const std::shared_ptr<ThreadWorld>& world) {
  std::shared_ptr<ThreadFamily> family(new ThreadFamily(world), ThreadFamily::end);
  std::string lost;
  {
    const std::lock_guard lock(world->mutex_);
    std::erase_if(world->families_, [](const auto& known) { return known.expired(); });
    world->families_.push_back(family);
    lost = world->lost_;
  }
  if (!lost.empty()) family->abort(lost);
  return family;
}
void ThreadWorld::lose(const std::string& text) {
  std::vector<std::shared_ptr<ThreadFamily>> alive;
  {
    const std::lock_guard lock(mutex_);
    if (lost_.empty()) lost_ = text;
    for (const auto& known : families_)
      if (auto family = known.lock()) alive.push_back(std::move(family));
  }
  for (const auto& family : alive) family->abort(text);
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadFamily> family, std::shared_ptr<Line> line, int rank)
      : family_(std::move(family)), line_(std::move(line)), rank_(rank) {}

  const std::string& name() const override { return line_->name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(line_->world.size()); }
  void submit(OperationPtr op) override {
    op->input = memory_of(op->input);
    op->output = memory_of(op->output);
    family_->post(line_, rank_, std::move(op));
  }
  std::shared_ptr<Communicator> split(const std::vector<int>& ranks,
                                      const std::string& name) override {
    auto part = family_->part(*line_, splits_++, ranks, name, rank_);
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) return nullptr;
    return std::make_shared<ThreadCommunicator>(family_, std::move(part),
                                                static_cast<int>(own - ranks.begin()));
  }
  std::shared_ptr<Communicator> renew() override {
    auto next = family_->successor(*line_, renewals_++);
    return std::make_shared<ThreadCommunicator>(next, next->root(*line_), rank_);
  }
  void abort(const std::string& reason) override {
    family_->abort(str("rank ", rank_, " gave up group '", name(), "': ", reason));
  }
  bool aborted() const override { return family_->failed(); }
  const std::shared_ptr<Executor>& executor() const override {
    return family_->world().executor(world_rank());
  }
  uint64_t machine() const override { return family_->world().machine(world_rank()); }

 private:
  int world_rank() const { return line_->world[static_cast<size_t>(rank_)]; }
  std::shared_ptr<ThreadFamily> family_;
  std::shared_ptr<Line> line_;
  int rank_;
  std::atomic<uint64_t> splits_{0}, renewals_{0};
};

}  // namespace

ThreadRanks make_thread_ranks(std::vector<std::shared_ptr<Executor>> executors,
                              const ThreadsOptions& options) {
  const auto count = static_cast<int>(executors.size());
  auto line = std::make_shared<Line>();
  line->name = "world";
  for (int r = 0; r < count; ++r) line->world.push_back(r);
  const auto world = std::make_shared<ThreadWorld>(std::move(executors), options.ranks_per_machine);
  const auto family = ThreadWorld::make_family(world);
  ThreadRanks ranks;
  for (int r = 0; r < count; ++r)
    ranks.groups.emplace_back(std::make_shared<ThreadCommunicator>(family, line, r),
                              options.timeout);
  ranks.lose = [world](const std::string& text) { world->lose(text); };
  return ranks;
}

}  // namespace grapnel::dist
