#include "grapnel/base/pool.h"

#include <algorithm>
#include <mutex>
#include <new>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/per_thread.h"
#include "grapnel/base/sanitizer.h"

namespace grapnel::base {
namespace {

// Never written: limit 0 keeps the fast paths out.
constinit PoolLists no_lists;

constexpr size_t class_bytes(size_t c) { return (c + 1) * pool_granule; }

// Blocks move between a thread and the shared list in batches of about 8 KiB, so that the lock is
// rare.
constexpr uint32_t batch_of(size_t c) {
  return static_cast<uint32_t>(std::clamp<size_t>(8192 / class_bytes(c), 8, 64));
}

// The first block of a waiting batch also links the batches.
struct Batch : FreeBlock {
  Batch* next_batch;
};
static_assert(sizeof(Batch) <= pool_granule);

// Constant initialisation and no destructor: usable before main and after static destruction.
struct alignas(64) SharedList {
  ProcessMutex mutex{ForkOrder::small_blocks};
  Batch* batches = nullptr;

  void push(FreeBlock* chain) noexcept {
    const std::lock_guard lock(mutex);
    batches = new (chain) Batch{{chain->next}, batches};
  }
  FreeBlock* pop() noexcept {
    const std::lock_guard lock(mutex);
    Batch* const batch = batches;
    if (batch != nullptr) batches = batch->next_batch;
    return batch;
  }
};
constinit SharedList shared_lists[pool_classes];

FreeBlock* new_batch(size_t c) {
  auto* const memory = static_cast<std::byte*>(::operator new(batch_of(c) * class_bytes(c)));
  FreeList list;
  // Backwards, so that blocks are handed out in order of address.
  for (uint32_t i = batch_of(c); i-- > 0;) list.push(memory + i * class_bytes(c));
  return list.head;
}

FreeBlock* any_batch(size_t c) {
  FreeBlock* const waiting = shared_lists[c].pop();
  return waiting != nullptr ? waiting : new_batch(c);
}

// Set when the thread's lists are gone: what is freed later still goes to the shared lists
// directly.
constinit thread_local bool thread_ended = false;

struct ThreadLists : PoolLists, ThreadEnd {
  ThreadLists() noexcept : ThreadEnd{&end} {}

  static void end(ThreadEnd& self) noexcept {
    auto* const lists = static_cast<ThreadLists*>(&self);
    thread_ended = true;
    pool_lists = &no_lists;
    for (size_t c = 0; c < pool_classes; ++c) {
      FreeList& list = lists->of_class[c];
      while (list.count > 0) shared_lists[c].push(list.split(std::min(list.count, batch_of(c))));
    }
    delete lists;
  }
};

// False when this thread has to do without lists of its own.
bool has_lists() noexcept {
  if (pool_lists != &no_lists) return true;
  if (address_sanitizer || thread_ended) return false;
  auto* const lists = new (std::nothrow) ThreadLists;
  if (lists == nullptr) return false;
  for (size_t c = 0; c < pool_classes; ++c) lists->of_class[c].limit = 2 * batch_of(c);
  pool_lists = lists;
  at_thread_end(*lists);
  return true;
}

}  // namespace

constinit thread_local PoolLists* pool_lists [[gnu::tls_model("initial-exec")]] = &no_lists;

void* pool_allocate_slow(size_t bytes) {
  const size_t c = (bytes - 1) / pool_granule;
  if (address_sanitizer || c >= pool_classes) return ::operator new(bytes);
  FreeBlock* const chain = any_batch(c);
  if (!has_lists()) {
    if (chain->next != nullptr) shared_lists[c].push(chain->next);
    return chain;
  }
  FreeList& list = pool_lists->of_class[c];
  list.head = chain->next;
  for (const FreeBlock* b = list.head; b != nullptr; b = b->next) ++list.count;
  return chain;
}

void pool_deallocate_slow(void* memory, size_t bytes) noexcept {
  if (memory == nullptr) return;
  const size_t c = (bytes - 1) / pool_granule;
  if (address_sanitizer || c >= pool_classes) return ::operator delete(memory, bytes);
  if (!has_lists()) return shared_lists[c].push(new (memory) FreeBlock{nullptr});
  FreeList& list = pool_lists->of_class[c];
  if (list.count == list.limit) shared_lists[c].push(list.split(batch_of(c)));
  list.push(memory);
}

}  // namespace grapnel::base
