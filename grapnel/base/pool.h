/// Memory for small objects that come and go all the time: tensor headers, graph nodes, hook slots.
///
/// Every thread keeps free lists, one for each multiple of 16 bytes up to 1 KiB, so taking and
/// returning a block is about ten instructions and no atomic ones. A thread that frees what another
/// one allocated passes surplus on in batches through a shared list. Memory of the pool is reused
/// for ever and not given back to the system. Larger objects, and all objects under the address
/// sanitizer, come from operator new.
///
/// Everything here may be called at any time: before main, while a thread ends and during static
/// destruction. Start reading at pool_allocate.
#pragma once

#include <cstddef>

#include "grapnel/base/free_list.h"

namespace grapnel::base {

inline constexpr size_t pool_granule = 16;
inline constexpr size_t pool_classes = 64;

struct PoolLists {
  FreeList of_class[pool_classes];
};

/// The calling thread's lists, or lists of limit 0 that send every call to the slow path. One word,
/// because with the initial-exec model a library's thread-locals share a small reserve when it is
/// loaded at run time.
extern constinit thread_local PoolLists* pool_lists [[gnu::tls_model("initial-exec")]];

void* pool_allocate_slow(size_t bytes);
void pool_deallocate_slow(void* memory, size_t bytes) noexcept;

/// `bytes` of memory aligned to 16. Throws std::bad_alloc like operator new.
[[nodiscard]] inline void* pool_allocate(size_t bytes) {
  const size_t c =
      (bytes - 1) / pool_granule;  // no bytes wrap round to a class that does not exist
  if (c < pool_classes) [[likely]] {
    FreeList& list = pool_lists->of_class[c];
    if (list.head != nullptr) [[likely]]
      return list.pop();
  }
  return pool_allocate_slow(bytes);
}

/// Takes back memory from pool_allocate(bytes), on any thread. Null is ignored.
inline void pool_deallocate(void* memory, size_t bytes) noexcept {
  const size_t c = (bytes - 1) / pool_granule;
  if (c < pool_classes) [[likely]] {
    FreeList& list = pool_lists->of_class[c];
    if (list.count < list.limit && memory != nullptr) [[likely]]
      return list.push(memory);
  }
  pool_deallocate_slow(memory, bytes);
}

/// Derive from it and `new` and `delete` of the class use the pool. A polymorphic class needs a
/// virtual destructor, as always; types aligned to more than 16 bytes do not fit.
struct Pooled {
  static void* operator new(size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* memory, size_t bytes) noexcept {
    pool_deallocate(memory, bytes);
  }
};

}  // namespace grapnel::base
