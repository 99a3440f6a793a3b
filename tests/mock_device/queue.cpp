#include "tests/mock_device/queue.h"

#include <chrono>
#include <thread>
#include <utility>

namespace grapnel::mock {

Queue::Queue(uint64_t seed) : state_(seed * 2 + 1) {
  // Devices live as long as the process, so nobody has to join.
  std::thread([this] { work(); }).detach();
}

void Queue::put(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(work));
  ++put_;
  changed_.notify_all();
}

void Queue::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, upto = put_] { return done_ >= upto; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Queue::hold(bool on) {
  const std::lock_guard lock(mutex_);
  held_ = on;
  changed_.notify_all();
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() && !held_; });
    std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    if (state_ >> 58 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(state_ >> 40 & 127));
    std::exception_ptr error;
    try {
      next();
    } catch (...) {
      error = std::current_exception();
    }
    next = nullptr;  // what it holds goes before anybody hears that it is done
    lock.lock();
    if (error && !error_) error_ = error;
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace grapnel::mock
