#include "grapnel/dist/executor.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/context.h"
#include "grapnel/base/threads.h"
#include "grapnel/dist/future.h"
#include "grapnel/dist/process_wide.h"

namespace grapnel::dist {

struct Executor::State : std::enable_shared_from_this<State> {
  const base::HomeProcess home;
  std::function<void(const std::function<void()>&)> around;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  std::vector<std::thread> threads;
  int idle = 0;
  bool busy = false;  ///< a job is running and not waiting
  bool stopping = false;
  bool orphaned = false;  ///< nobody will join threads any more

  /// With the lock held: somebody must be there to take the next job, or to go on with one that
  /// waited.
  void let_next_begin() {
    busy = false;
    changed.notify_all();
    if (!jobs.empty()) ensure_thread();
  }
  void ensure_thread() {
    if (busy) return;
    if (idle > 0) return changed.notify_all();
    threads.push_back(base::start_thread([self = shared_from_this()] {
      if (self->around) self->around([&] { self->work(); });
      else self->work();
    }));
    if (!orphaned) return;
    threads.back().detach();
    threads.pop_back();
  }

  void work() {
    NoGradGuard no_grad;
    running = this;
    std::unique_lock lock(mutex);
    while (true) {
      ++idle;
      changed.wait(lock, [&] { return stopping || (!busy && !jobs.empty()); });
      --idle;
      if (jobs.empty()) return;  // stopping; a job that still runs takes the rest
      if (busy) {
        if (stopping) return;
        continue;
      }
      auto job = std::move(jobs.front());
      jobs.pop_front();
      busy = true;
      lock.unlock();
      job();
      job = nullptr;  // What it captured may be the user's; it dies outside the lock.
      lock.lock();
      let_next_begin();
    }
  }
};

thread_local Executor::State* Executor::running = nullptr;

namespace {
constinit ProcessWide<std::shared_ptr<Executor>> of_the_process{
    [] { return std::make_shared<Executor>(); }};
}  // namespace

Executor::Executor(std::function<void(const std::function<void()>&)> around)
    : state_(std::make_shared<State>()) {
  state_->around = std::move(around);
}

Executor::~Executor() {
  // See Note [Threads and forks]: the threads that wait in the state stayed in the other process.
  if (state_->home.is_elsewhere()) {
    (void)new std::shared_ptr<State>(std::move(state_));
    return;
  }
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  // The last handle may die in a callback, on a thread of the executor itself: then nobody can wait
  // for the threads.
  state_->orphaned = running == state_.get();
  // Jobs that are left may still start threads, so look again.
  while (!state_->threads.empty()) {
    std::thread thread = std::move(state_->threads.back());
    state_->threads.pop_back();
    lock.unlock();
    if (state_->orphaned) thread.detach();
    else thread.join();
    lock.lock();
  }
}

void Executor::run(std::function<void()> job) {
  if (state_->home.is_elsewhere()) return job();  // nobody else would
  std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->ensure_thread();
}

std::shared_ptr<Executor> current_executor() {
  const std::shared_ptr<Executor>* const scoped = this_context.executor;
  return scoped && *scoped ? *scoped : of_the_process.get();
}

Executor::Scope::Scope(std::shared_ptr<Executor> executor)
    : executor_(std::move(executor)), before_(std::exchange(this_context.executor, &executor_)) {}
Executor::Scope::~Scope() { this_context.executor = before_; }

Executor::Waiting::Waiting() {
  if (!running) return;
  std::lock_guard lock(running->mutex);
  running->let_next_begin();
}
Executor::Waiting::~Waiting() {
  if (!running) return;
  std::unique_lock lock(running->mutex);
  running->changed.wait(lock, [] { return !running->busy; });
  running->busy = true;
}

}  // namespace grapnel::dist
