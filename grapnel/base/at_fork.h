/// What a fork must not find half done.
///
/// Note [Forking]
/// A child of a fork has a copy of the memory and only the thread that forked. A lock that another
/// thread held is taken there for ever, and what it guarded is half changed. So whatever the
/// process as a whole shares is locked around a fork: fork() waits until nobody is inside, and both
/// processes go on with it as it was. Locks are taken in the order of ForkOrder; who holds one of
/// them may take later ones only. Locks of single objects are not looked after: an object that
/// another thread was using at the moment of a fork is not to be used in the child.
/// tests/layers/check_lifetimes.py has the list of all locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace grapnel::base {

/// All that a fork waits for, the outermost first.
enum class ForkOrder : uint8_t {
  workers,      ///< base/thread_pool.cpp
  graphs,       ///< compile/cache.cpp
  kernels,      ///< codegen/jit.cpp
  hook_bodies,  ///< capture/declared.cpp
  plans,        ///< cpu/kernels/onednn.h
  generator,    ///< functions/generator.cpp
  ranks,        ///< dist/executor.cpp, dist/init.cpp
  /// autograd/anomaly.cpp, autograd/pass_failure.cpp, codegen/disk_cache.cpp,
  /// compile/dump.cpp, nn/call.cpp
  settings,
  failures,      ///< base/place.cpp
  places,        ///< base/symbolizer.cpp
  warnings,      ///< base/warn.cpp
  small_blocks,  ///< base/pool.cpp
  memory,        ///< base/allocator.cpp
};

/// Called around every fork, once it is registered; null for nothing to do. Never destroyed.
struct AtFork {
  ForkOrder order;
  void (*before)(AtFork& self) = nullptr;
  void (*in_parent)(AtFork& self) = nullptr;
  void (*in_child)(AtFork& self) = nullptr;
  AtFork* next = nullptr;
};
void register_at_fork(AtFork& handlers) noexcept;

/// A lock of the whole process, for objects that are never destroyed. Constant initialisation.
class ProcessMutex {
 public:
  constexpr explicit ProcessMutex(ForkOrder order)
      : at_fork_{{order, &before, &after, &after, nullptr}, this} {}
  ProcessMutex(const ProcessMutex&) = delete;
  ProcessMutex& operator=(const ProcessMutex&) = delete;

  void lock() {
    if (!entered_.load(std::memory_order_acquire)) [[unlikely]]
      enter_registry();
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  struct Handlers : AtFork {
    ProcessMutex* mutex;
  };
  static void before(AtFork& self) { static_cast<Handlers&>(self).mutex->mutex_.lock(); }
  static void after(AtFork& self) { static_cast<Handlers&>(self).mutex->mutex_.unlock(); }
  void enter_registry() noexcept;

  std::mutex mutex_;
  std::atomic<bool> entered_{false};  ///< into the registry of what a fork waits for
  Handlers at_fork_;
};

}  // namespace grapnel::base
