#include "grapnel/dist/future.h"

#include "grapnel/base/context.h"
#include "grapnel/dist/executor.h"

namespace grapnel::dist::detail {

thread_local std::function<void()>* progress_while_waiting = nullptr;
std::atomic<int> waiting_threads{0};
std::atomic<Driver*> driver{nullptr};

namespace {
struct CountedWait {
  CountedWait() { ++waiting_threads; }
  ~CountedWait() { --waiting_threads; }
  Executor::Waiting in_executor;
};
}  // namespace

bool FutureState::done() const {
  std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr FutureState::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

void FutureState::wait() const {
  if (progress_while_waiting) {
    while (!done()) (*progress_while_waiting)();
    return;
  }
  Driver* const d = driver.load(std::memory_order_acquire);
  if (done()) {
    if (d) d->came_to_wait();
    return;
  }
  const CountedWait waiting;
  if (d) d->drive(*this);
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return done_; });
}

bool FutureState::wait_for(std::chrono::milliseconds time) const {
  const auto until = std::chrono::steady_clock::now() + time;
  if (progress_while_waiting) {
    while (!done() && std::chrono::steady_clock::now() < until) (*progress_while_waiting)();
    return done();
  }
  const CountedWait waiting;
  std::unique_lock lock(mutex_);
  return arrived_.wait_until(lock, until, [&] { return done_; });
}

void FutureState::promise() {
  const std::lock_guard lock(mutex_);
  check(!done_, "forward_to: the other Future is complete already.");
  check(!promised_, "forward_to: the other Future is completed by another forward_to(), or by the "
                    "callback of then().");
  promised_ = true;
}

void FutureState::complete(By by, const std::function<void()>& store) {
  const std::lock_guard lock(mutex_);
  check(by == By::promise || !promised_,
        "Future: set_result and set_error are not for a Future that then() returned or that "
        "forward_to() was given; it gets the value of the callback, or of the other Future.");
  check(!done_, "Future: it was completed before; set_result and set_error may be called once.");
  store();
  done_ = true;
  arrived_.notify_all();
  if (callbacks_.empty()) return;
  running_ = true;
  executor_->run([self = shared_from_this()] { self->run_callbacks(); });
}

void FutureState::run_callbacks() {
  const auto self = shared_from_this();
  while (true) {
    Callback callback;
    {
      std::lock_guard lock(mutex_);
      if (callbacks_.empty()) {
        running_ = false;
        return;
      }
      callback = std::move(callbacks_.front());
      callbacks_.pop_front();
    }
    callback(self);
  }
}

void FutureState::attach(Callback callback) {
  {
    std::lock_guard lock(mutex_);
    if (!done_ || running_) {
      // Wherever it runs, it is meant as the code is that asks for it.
      callbacks_.push_back([callback = std::move(callback), modes = this_context.modes](
                               const std::shared_ptr<FutureState>& self) {
        const ModesScope as_asked(modes);
        callback(self);
      });
      return;
    }
  }
  callback(shared_from_this());
}

}  // namespace grapnel::dist::detail
