#include "grapnel/base/allocator.h"

#include <new>
#include <string>

#include "grapnel/base/allocation_fault.h"
#include "grapnel/base/allocator_state.h"
#include "grapnel/base/error.h"
#include "grapnel/base/per_thread.h"
#include "grapnel/base/sanitizer.h"

namespace grapnel {
namespace base {
namespace {

constexpr size_t largest_bytes = size_t{1} << 47;

constinit AllocatorState shared;

// Stands for having none: its lists have limit 0 and are never written, so both fast paths fall
// through.
constinit ThreadCache no_cache;
constinit thread_local ThreadCache* thread_cache [[gnu::tls_model("initial-exec")]] = &no_cache;
constinit thread_local bool thread_ended = false;
constinit thread_local AllocationFault* fault = nullptr;

ThreadCache* own_cache() noexcept { return thread_cache != &no_cache ? thread_cache : nullptr; }

// Outside the lock: unmapping takes its time.
void return_to_system(CachedBlock* evicted) noexcept {
  while (evicted != nullptr) {
    CachedBlock* const older = evicted->older;
    system_deallocate(evicted, size_class_bytes(evicted->size_class));
    evicted = older;
  }
}

void return_all_to_system(ThreadCache* t) noexcept {
  for (uint32_t c = 0; c < small_classes; ++c) {
    while (t->of_class[c].count > 0) system_deallocate(t->pop(c), size_class_bytes(c));
  }
}

// Ends a thread's cache; what frees memory on this thread later goes to the shared cache directly.
struct OwnCache : ThreadCache, ThreadEnd {
  OwnCache() noexcept : ThreadEnd{&end} {}

  static void end(ThreadEnd& self) noexcept {
    auto* const t = static_cast<OwnCache*>(&self);
    thread_ended = true;
    thread_cache = &no_cache;
    CachedBlock* evicted = nullptr;
    {
      const std::lock_guard lock(shared.mutex);
      shared.collect(t);
      shared.detach(t);
      for (uint32_t c = 0; c < small_classes; ++c) shared.take_over(t, c, t->of_class[c].count);
      evicted = shared.evict_surplus();
    }
    return_to_system(evicted);
    delete t;
  }
};

// The calling thread's cache, made on first use, or null if it has to do without. Call it without
// the lock.
ThreadCache* make_own_cache() noexcept {
  if (ThreadCache* const t = own_cache()) return t;
  if (address_sanitizer || thread_ended || fault != nullptr) return nullptr;
  auto* const t = new (std::nothrow) OwnCache;
  if (t == nullptr) return nullptr;
  at_thread_end(*t);
  {
    const std::lock_guard lock(shared.mutex);
    shared.attach(t);
  }
  thread_cache = t;
  return t;
}

// A cached block, or null. Brings the thread a few more of a small class while it has the lock.
void* take_cached(size_t bytes, uint32_t c) noexcept {
  ThreadCache* const t = make_own_cache();
  const std::lock_guard lock(shared.mutex);
  shared.collect(t);
  void* const memory = shared.blocks.take(c);
  if (memory == nullptr) return nullptr;
  if (t != nullptr && c < small_classes) {
    for (uint32_t i = 0; i < keep_of(c) / 2; ++i) {
      void* const more = shared.blocks.take(c);
      if (more == nullptr) break;
      t->push(more, c);
    }
  }
  shared.count_allocation(bytes);
  return memory;
}

std::string readable(size_t bytes) {
  if (bytes < (1 << 20)) return str(bytes, " bytes");
  return str(bytes, " bytes (", bytes >> 20, " MiB)");
}

[[noreturn, gnu::cold]] void fail_to_allocate(size_t bytes) {
  const size_t in_use = memory_stats().in_use;
  check(bytes <= largest_bytes, "out of memory: ", readable(bytes),
        " asked for, more than a program can address; ", readable(in_use),
        " in use.\nSuch a size usually comes from a negative or overflowed dimension.");
  fail("out of memory: ", readable(bytes), " asked for, ", readable(in_use),
       " in use, and this machine has ", readable(machine_memory()),
       ".\nUse a smaller batch, or let go of tensors that are no longer needed.");
}

void* allocate_from_system(size_t bytes, size_t held) {
  // The system promises memory that it may not have and ends the whole program when it is touched.
  // So what can never be filled is refused here, and the caches make room first.
  const MemoryStats stats = memory_stats();
  const size_t machine = machine_memory();
  if (held > machine || stats.in_use > machine - held) fail_to_allocate(bytes);
  if (stats.in_use + stats.cached > machine - held) release_cached_memory();
  void* memory = system_allocate(held);
  if (memory == nullptr) {
    release_cached_memory();
    memory = system_allocate(held);
  }
  if (memory == nullptr) fail_to_allocate(bytes);
  return memory;
}

// The exact size lets the address sanitizer see where a block ends.
size_t held_bytes(size_t bytes, uint32_t c) {
  return address_sanitizer ? std::max<size_t>(bytes, 1) : size_class_bytes(c);
}

[[gnu::noinline]] void* allocate_slow(size_t bytes) {
  if (bytes > largest_bytes || (fault != nullptr && fault->strikes())) fail_to_allocate(bytes);
  const uint32_t c = size_class_of(bytes);
  if (void* const cached = take_cached(bytes, c)) return cached;
  void* const memory = allocate_from_system(bytes, held_bytes(bytes, c));
  const std::lock_guard lock(shared.mutex);
  ++shared.system_allocations;
  shared.count_allocation(bytes);
  return memory;
}

[[gnu::noinline]] void deallocate_slow(void* memory, size_t bytes) noexcept {
  const uint32_t c = size_class_of(bytes);
  ThreadCache* stale = nullptr;
  CachedBlock* evicted = nullptr;
  ThreadCache* const t = make_own_cache();
  {
    const std::lock_guard lock(shared.mutex);
    shared.collect(t);
    shared.count_deallocation(bytes);
    if (t != nullptr && t->releases_seen != shared.releases) {
      t->releases_seen = shared.releases;
      stale = t;
    } else if (t != nullptr && c < small_classes) {
      shared.take_over(t, c, t->of_class[c].count / 2);
    }
    if (!address_sanitizer) {
      shared.blocks.put(memory, c);
      evicted = shared.evict_surplus();
    }
  }
  if (address_sanitizer) system_deallocate(memory, held_bytes(bytes, c));
  if (stale != nullptr) return_all_to_system(stale);
  return_to_system(evicted);
}

}  // namespace

void* allocate(size_t bytes) {
  if (bytes <= small_bytes) [[likely]] {
    const uint32_t c = size_class_of(bytes);
    ThreadCache* const t = thread_cache;
    if (t->of_class[c].head != nullptr) [[likely]] {
      t->count_allocation(bytes);
      return t->pop(c);
    }
  }
  return allocate_slow(bytes);
}

void deallocate(void* memory, size_t bytes) noexcept {
  if (memory == nullptr) return;
  if (bytes <= small_bytes) [[likely]] {
    const uint32_t c = size_class_of(bytes);
    ThreadCache* const t = thread_cache;
    if (t->of_class[c].count < t->of_class[c].limit) [[likely]] {
      t->count_deallocation(bytes);
      return t->push(memory, c);
    }
  }
  deallocate_slow(memory, bytes);
}

AllocationFault::AllocationFault(int64_t fails) : fails_(fails), cache_(thread_cache) {
  thread_cache = &no_cache;
  fault = this;
}

AllocationFault::~AllocationFault() {
  thread_cache = static_cast<ThreadCache*>(cache_);
  fault = nullptr;
}

void trim(size_t keep) {
  CachedBlock* evicted = nullptr;
  {
    const std::lock_guard lock(shared.mutex);
    evicted = shared.blocks.evict(keep);
  }
  return_to_system(evicted);
}

}  // namespace base

using base::shared;

MemoryStats memory_stats() {
  const std::lock_guard lock(shared.mutex);
  shared.collect(base::own_cache());
  MemoryStats stats;
  stats.cached = shared.blocks.bytes();
  stats.allocations = shared.allocations;
  stats.system_allocations = shared.system_allocations;
  int64_t in_use = shared.in_use;
  for (const base::ThreadCache* t = shared.threads; t != nullptr; t = t->next) {
    in_use += t->in_use.get();
    stats.cached += t->cached.get();
    stats.allocations += t->allocations.get();
  }
  // Other threads go on counting while we add.
  stats.in_use = static_cast<size_t>(std::max<int64_t>(in_use, 0));
  stats.peak = static_cast<size_t>(std::max(shared.peak, in_use));
  return stats;
}

void reset_peak_memory() {
  const std::lock_guard lock(shared.mutex);
  base::ThreadCache* const own = base::own_cache();
  shared.collect(own);
  ++shared.resets;
  if (own != nullptr) own->resets_seen = shared.resets;
  shared.peak = shared.in_use;
}

void release_cached_memory() {
  base::ThreadCache* const own = base::own_cache();
  base::CachedBlock* evicted = nullptr;
  {
    const std::lock_guard lock(shared.mutex);
    ++shared.releases;
    if (own != nullptr) own->releases_seen = shared.releases;
    evicted = shared.blocks.evict(0);
  }
  if (own != nullptr) base::return_all_to_system(own);
  base::return_to_system(evicted);
}

void set_memory_cache_limit(size_t bytes) {
  base::CachedBlock* evicted = nullptr;
  {
    const std::lock_guard lock(shared.mutex);
    shared.limit = bytes;
    evicted = shared.evict_surplus();
  }
  base::return_to_system(evicted);
}

}  // namespace grapnel
