/// A one-byte lock for critical sections of a few instructions.
#pragma once

#include <atomic>
#include <thread>

namespace grapnel::base {

/// Holds a byte as a lock while it lives: for classes whose headers programs include.
class SpinGuard {
 public:
  explicit SpinGuard(std::atomic<bool>& taken) noexcept : taken_(taken) { lock(taken_); }
  ~SpinGuard() { unlock(taken_); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

  static void lock(std::atomic<bool>& taken) noexcept {
    while (taken.exchange(true, std::memory_order_acquire))
      while (taken.load(std::memory_order_relaxed)) std::this_thread::yield();
  }
  static void unlock(std::atomic<bool>& taken) noexcept {
    taken.store(false, std::memory_order_release);
  }

 private:
  std::atomic<bool>& taken_;
};

class SpinLock {
 public:
  void lock() noexcept { SpinGuard::lock(taken_); }
  void unlock() noexcept { SpinGuard::unlock(taken_); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace grapnel::base
