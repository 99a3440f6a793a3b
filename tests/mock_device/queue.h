/// The queue of a mock device, and the thread that empties it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>

namespace grapnel::mock {

class Queue {
 public:
  /// `seed` decides when it dawdles.
  explicit Queue(uint64_t seed);
  void put(std::function<void()> work);
  /// Until all that is in the queue is done. Throws what went wrong since the last wait.
  void wait();
  void hold(bool on);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  uint64_t put_ = 0, done_ = 0;
  bool held_ = false;
  std::exception_ptr error_;
  uint64_t state_;
};

}  // namespace grapnel::mock
