/// Ranks that are threads of this process. Start reading at ThreadFamily::post.
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/rank.h"
#include "grapnel/base/threads.h"
#include "grapnel/dist/run_threads.h"
#include "grapnel/ops/functions.h"

namespace grapnel::dist {

namespace {

void reduce_into(const Tensor& target, const Tensor& other, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: target.add_(other); return;
    case ReduceOp::product: target.mul_(other); return;
    case ReduceOp::min: target.copy_(min(target, other)); return;
    case ReduceOp::max: target.copy_(max(target, other)); return;
  }
}

/// Carries out a collective for all ranks at once. Sums are made in the order of ranks, each step
/// rounded to the type, so results have the same bits on every rank and in every run.
void execute(const std::vector<OperationPtr>& ops) {
  NoGradGuard no_grad;
  const Call& call = ops[0]->call;
  const auto ranks = static_cast<int64_t>(ops.size());
  const auto input = [&](size_t r) { return ops[r]->input.detach(); };
  const auto output = [&](size_t r) { return ops[r]->output.detach(); };
  const auto part = [&](const Tensor& t, int64_t r) {
    return t.reshape({-1}).narrow(0, r * call.count, call.count);
  };
  switch (call.kind) {
    case CallKind::all_reduce:
      for (size_t r = 1; r < ops.size(); ++r) reduce_into(output(0), input(r), call.op);
      for (size_t r = 1; r < ops.size(); ++r) output(r).copy_(output(0));
      return;
    case CallKind::broadcast: {
      const auto root = static_cast<size_t>(call.peer);
      for (size_t r = 0; r < ops.size(); ++r)
        if (r != root) output(r).copy_(input(root));
      return;
    }
    case CallKind::all_gather:
      for (int64_t r = 0; r < ranks; ++r)
        part(output(0), r).copy_(input(static_cast<size_t>(r)).reshape({-1}));
      for (size_t r = 1; r < ops.size(); ++r) output(r).copy_(output(0));
      return;
    case CallKind::reduce_scatter:
      for (int64_t r = 0; r < ranks; ++r) {
        const Tensor sum = output(static_cast<size_t>(r)).reshape({-1});
        sum.copy_(part(input(0), r));
        for (size_t s = 1; s < ops.size(); ++s) reduce_into(sum, part(input(s), r), call.op);
      }
      return;
    case CallKind::all_to_all:
      for (int64_t to = 0; to < ranks; ++to)
        for (int64_t from = 0; from < ranks; ++from)
          part(output(static_cast<size_t>(to)), from)
              .copy_(part(input(static_cast<size_t>(from)), to));
      return;
    case CallKind::send:
    case CallKind::recv: ops[1]->output.detach().copy_(ops[0]->input.detach()); return;
    case CallKind::barrier:
    case CallKind::split: return;
  }
}

/// What the ranks of one group or channel have called so far and is not complete.
struct Line {
  std::string name;
  std::vector<int> world;  ///< numbers of the ranks in the family
  struct Slot {
    std::vector<OperationPtr> ops;
    size_t arrived = 0;
    int first = -1;
  };
  std::map<uint64_t, Slot> slots;
  /// By sender, receiver, tag.
  std::map<std::tuple<int, int, int>, std::deque<OperationPtr>> sends, recvs;
  std::map<uint64_t, std::pair<std::vector<int>, std::shared_ptr<Line>>> parts;
  std::map<uint64_t, std::shared_ptr<class ThreadFamily>> successors;
};

/// Groups that share their fate, and the thread that works for all of them. Only the process in
/// which it was made can use it, and ends it: see Note [Threads and forks].
class ThreadFamily {
 public:
  static std::shared_ptr<ThreadFamily> make(std::vector<std::shared_ptr<Executor>> executors,
                                            int ranks_per_machine) {
    return {new ThreadFamily(std::move(executors), ranks_per_machine), [](ThreadFamily* family) {
              if (!family->home_.is_elsewhere()) delete family;
            }};
  }
  ThreadFamily(std::vector<std::shared_ptr<Executor>> executors, int ranks_per_machine)
      : executors_(std::move(executors)),
        ranks_per_machine_(ranks_per_machine),
        worker_(base::start_thread([this] { work(); })) {}
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
    if (!next) next = make(executors_, ranks_per_machine_);
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

  const std::shared_ptr<Executor>& executor(int world_rank) const {
    return executors_[static_cast<size_t>(world_rank)];
  }
  uint64_t machine(int world_rank) const {
    return ranks_per_machine_ > 0 ? static_cast<uint64_t>(world_rank / ranks_per_machine_) : 0;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void match_collective(Line& line, int rank, const OperationPtr& op, Lock& lock) {
    Line::Slot& slot = line.slots[op->sequence];
    if (slot.ops.empty()) slot.ops.resize(line.world.size());
    if (slot.first < 0) slot.first = rank;
    const Call& first = slot.ops[static_cast<size_t>(slot.first)]
                            ? slot.ops[static_cast<size_t>(slot.first)]->call
                            : op->call;
    if (!(first == op->call)) {
      const std::string text = str(
          "the ranks of group '", line.name, "' called different collectives as number ",
          op->sequence, ": rank ", slot.first, " called ", first.str(), ", rank ", rank, " called ",
          op->call.str(), ".\nAll ranks must call the same collectives in the same order.");
      return fail(std::make_exception_ptr(CommMismatch(text)), text, lock);
    }
    slot.ops[static_cast<size_t>(rank)] = op;
    if (++slot.arrived < line.world.size())
      return changed_.notify_all();  // the worker minds the deadline
    make_ready(std::move(slot.ops));
    line.slots.erase(op->sequence);
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
    for (auto& [deadline, posted] : pending) posted.first->done.set_error(why);
    lock.lock();
  }

  void time_out(const Line& line, const Operation& op, Lock& lock) {
    std::string missing;
    if (const auto it = line.slots.find(op.sequence);
        !op.call.is_point_to_point() && it != line.slots.end()) {
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
          for (auto& op : ops) op->done.set_error(std::current_exception());
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
  const std::vector<std::shared_ptr<Executor>> executors_;
  const int ranks_per_machine_;
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

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadFamily> family, std::shared_ptr<Line> line, int rank)
      : family_(std::move(family)), line_(std::move(line)), rank_(rank) {}

  const std::string& name() const override { return line_->name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(line_->world.size()); }
  void submit(OperationPtr op) override { family_->post(line_, rank_, std::move(op)); }
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
    const std::string text = str("rank ", rank_, " gave up group '", name(), "': ", reason);
    family_->fail(std::make_exception_ptr(CommAborted(text)), text);
  }
  bool aborted() const override { return family_->failed(); }
  const std::shared_ptr<Executor>& executor() const override {
    return family_->executor(world_rank());
  }
  uint64_t machine() const override { return family_->machine(world_rank()); }

 private:
  int world_rank() const { return line_->world[static_cast<size_t>(rank_)]; }
  std::shared_ptr<ThreadFamily> family_;
  std::shared_ptr<Line> line_;
  int rank_;
  std::atomic<uint64_t> splits_{0}, renewals_{0};
};

std::vector<ProcessGroup> make_ranks(int count, const ThreadsOptions& options) {
  std::vector<std::shared_ptr<Executor>> executors;
  auto line = std::make_shared<Line>();
  line->name = "world";
  for (int r = 0; r < count; ++r) {
    executors.push_back(std::make_shared<Executor>());
    line->world.push_back(r);
  }
  auto family = ThreadFamily::make(std::move(executors), options.ranks_per_machine);
  std::vector<ProcessGroup> groups;
  for (int r = 0; r < count; ++r)
    groups.emplace_back(std::make_shared<ThreadCommunicator>(family, line, r), options.timeout);
  return groups;
}

thread_local const ProcessGroup* own_group = nullptr;

}  // namespace

ProcessGroup group_of_this_thread() { return own_group ? *own_group : ProcessGroup(); }

void run_threads(int count, const std::function<void(ProcessGroup)>& fn,
                 const ThreadsOptions& options) {
  check(count > 0, "run_threads: the number of ranks must be positive, got ", count, ".");
  std::vector<ProcessGroup> groups = make_ranks(count, options);
  std::mutex mutex;
  std::exception_ptr first;  // The others fail because of it.
  std::vector<std::thread> threads;
  for (ProcessGroup& group : groups)
    threads.push_back(base::start_user_thread([&, group = std::move(group)]() mutable {
      Executor::Scope scope(group.communicator().executor());
      own_group = &group;
      base::set_thread_rank({group.rank(), group.size()});
      try {
        fn(group);
      } catch (...) {
        {
          std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        group.abort("its function ended with an exception");
      }
      group = {};
    }));
  groups.clear();
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

ProcessGroup single_rank(std::chrono::milliseconds timeout) {
  return make_ranks(1, {.timeout = timeout})[0];
}

}  // namespace grapnel::dist
