/// DeviceMemory: memory and queues of one device that is not the CPU.
///
/// Work is put into a queue and done in its order, later. Memory belongs to a queue in this sense: it
/// may be used by work that is put there from now on, and is given back when the work already there
/// is done. Host code never touches it; the copies here are the only way in and out.
///
/// Note [Home queues]
/// A storage is used by one queue at a time. `Storage::home()` is the one that used it last; whoever puts
/// work on it into a queue says so first, `use_on`, and what the other queue has still to do then comes
/// before. Reading counts as use. So no two queues race for a storage, and memory goes back to the queue
/// that used it last. Views share a storage and with it the queue.
///
/// Whoever brings a device says so with `provide`, once for each of the three things it brings: its
/// memory (here), its evaluator (ops/evaluator.h), and who runs plans there (compile/plan_runner.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "grapnel/base/allocator.h"
#include "grapnel/tensor/device.h"

namespace grapnel {

/// What a device brings for its memory and queues.
class DeviceMemory {
 public:
  /// Usable by work put into `queue` from now on.
  virtual void* allocate(size_t bytes, QueueId queue) = 0;
  /// When the work already in `queue` is done.
  virtual void deallocate(void* memory, size_t bytes, QueueId queue) noexcept = 0;
  /// The memory of the host may change after the call.
  virtual void copy_in(void* to, const void* host, size_t bytes, QueueId queue) = 0;
  /// Waits.
  virtual void copy_out(void* host, const void* from, size_t bytes, QueueId queue) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, QueueId queue) = 0;
  /// Work put into `waits` from now on begins when all that is in `other` is done. The caller does not
  /// wait.
  virtual void wait_for(QueueId waits, QueueId other) = 0;
  /// Waits for all work in `queue`.
  virtual void synchronize(QueueId queue) = 0;
  /// Where this thread puts its work.
  virtual QueueId current_queue() = 0;
  /// What tensors hold, and what is kept for the next ones.
  virtual MemoryStats stats() const = 0;
  /// Gives back what is kept.
  virtual void trim() = 0;

 protected:
  ~DeviceMemory() = default;
};

/// That of a device. Fails, saying what is missing, if there is no such device.
DeviceMemory& memory_of(Device device);
/// The device brings its own; null takes it back.
void provide(Device device, DeviceMemory* memory);

/// Fails, saying what is missing.
[[noreturn, gnu::cold]] void refuse_device(Device device);

/// What each CUDA device has one of. Those who brought it outlive all tensors.
template <class T>
class DeviceTable {
 public:
  constexpr DeviceTable() = default;
  T* find(Device device) const {
    if (!device.is_cuda() || device.index() < 0 || device.index() >= kMostDevices) return nullptr;
    return entries_[static_cast<size_t>(device.index())].load(std::memory_order_acquire);
  }
  T& operator[](Device device) const {
    T* const found = find(device);
    if (!found) refuse_device(device);
    return *found;
  }
  void set(Device device, T* entry) {
    if (!device.is_cuda() || device.index() < 0 || device.index() >= kMostDevices)
      refuse_device(device);
    entries_[static_cast<size_t>(device.index())].store(entry, std::memory_order_release);
  }

 private:
  std::array<std::atomic<T*>, kMostDevices> entries_{};
};

}  // namespace grapnel
