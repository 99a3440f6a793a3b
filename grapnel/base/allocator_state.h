/// The allocator's books: what one thread keeps and what all share. Only allocator.cpp includes
/// this.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/block_cache.h"
#include "grapnel/base/free_list.h"
#include "grapnel/base/size_class.h"
#include "grapnel/base/system_memory.h"

namespace grapnel::base {

inline constexpr size_t small_bytes = 64 << 10;
inline constexpr uint32_t small_classes = size_class_of(small_bytes) + 1;

/// A thread keeps up to 128 KiB of each small class and passes half of it on when that is exceeded.
constexpr uint32_t keep_of(uint32_t c) {
  return static_cast<uint32_t>(std::clamp<size_t>((128 << 10) / size_class_bytes(c), 2, 64));
}

/// Written by one thread and read by any: plain loads and stores, but no data race.
template <class T>
class Counter {
 public:
  T get() const noexcept { return value_.load(std::memory_order_relaxed); }
  void set(T value) noexcept { value_.store(value, std::memory_order_relaxed); }
  void add(T more) noexcept { set(get() + more); }

 private:
  std::atomic<T> value_{0};
};

/// What a thread keeps, and what it has counted since it last held the lock.
struct ThreadCache {
  FreeList of_class[small_classes];
  Counter<size_t> cached;
  Counter<uint64_t> allocations;
  Counter<int64_t> in_use;  // relative: another thread may free what this one allocated
  int64_t peak = 0;         // of in_use
  uint64_t resets_seen = 0;
  uint64_t releases_seen = 0;
  ThreadCache* next = nullptr;
  ThreadCache* prev = nullptr;

  void* pop(uint32_t c) noexcept {
    cached.add(-size_class_bytes(c));
    return of_class[c].pop();
  }
  void push(void* memory, uint32_t c) noexcept {
    cached.add(size_class_bytes(c));
    of_class[c].push(memory);
  }
  void count_allocation(size_t bytes) noexcept {
    allocations.add(1);
    in_use.add(static_cast<int64_t>(bytes));
    peak = std::max(peak, in_use.get());
  }
  void count_deallocation(size_t bytes) noexcept { in_use.add(-static_cast<int64_t>(bytes)); }
};

/// What all threads share. Constant initialisation and no destructor: usable before main and after
/// static destruction.
struct AllocatorState {
  ProcessMutex mutex{ForkOrder::memory};  // guards everything below
  BlockCache blocks;
  std::optional<size_t> limit;  // of blocks.bytes()
  int64_t in_use = 0;  // this and the next two: without what the threads have not handed in yet
  int64_t peak = 0;
  uint64_t allocations = 0;
  uint64_t system_allocations = 0;
  uint64_t resets = 0;    // calls of reset_peak_memory
  uint64_t releases = 0;  // calls of release_cached_memory
  ThreadCache* threads = nullptr;

  void attach(ThreadCache* t) noexcept {
    for (uint32_t c = 0; c < small_classes; ++c) t->of_class[c].limit = keep_of(c);
    t->resets_seen = resets;
    t->releases_seen = releases;
    t->next = threads;
    if (t->next != nullptr) t->next->prev = t;
    threads = t;
  }
  void detach(ThreadCache* t) noexcept {
    (t->prev != nullptr ? t->prev->next : threads) = t->next;
    if (t->next != nullptr) t->next->prev = t->prev;
  }

  void count_allocation(size_t bytes) noexcept {
    ++allocations;
    in_use += static_cast<int64_t>(bytes);
    peak = std::max(peak, in_use);
  }
  void count_deallocation(size_t bytes) noexcept { in_use -= static_cast<int64_t>(bytes); }
  /// Adds what a thread has counted since the last time. Null, for a thread without a cache, adds
  /// nothing.
  void collect(ThreadCache* t) noexcept {
    if (t == nullptr) return;
    // A peak from before reset_peak_memory is of no interest any more.
    if (t->resets_seen == resets) peak = std::max(peak, in_use + t->peak);
    t->resets_seen = resets;
    in_use += t->in_use.get();
    peak = std::max(peak, in_use);
    allocations += t->allocations.get();
    t->in_use.set(0);
    t->allocations.set(0);
    t->peak = 0;
  }

  /// Moves n blocks of one class from a thread to the shared cache.
  void take_over(ThreadCache* t, uint32_t c, uint32_t n) noexcept {
    for (; n > 0; --n) blocks.put(t->pop(c), c);
  }
  CachedBlock* evict_surplus() noexcept {
    if (!limit) limit = machine_memory() / 4;
    return blocks.evict(*limit);
  }
};

}  // namespace grapnel::base
