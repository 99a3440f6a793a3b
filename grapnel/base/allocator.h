/// Memory for tensor data. Freed blocks are kept for the next tensor of about the same size, since
/// new memory from the system is slow: every page of it faults once.
///
/// Blocks up to 64 KiB are kept by the thread that frees them (a few nanoseconds, no lock, at most
/// 5 MiB a thread); the surplus and all larger blocks by one shared cache. Any thread may free any
/// block, also while a thread ends and during static destruction. Under the address sanitizer
/// nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grapnel {

/// Bytes that tensors hold now and held at most.
struct MemoryStats {
  size_t in_use = 0;  ///< bytes asked for by the blocks that live now
  size_t peak = 0;  ///< the most `in_use` has been; with several threads, to within what they cache
  size_t cached = 0;                ///< bytes of freed blocks kept for reuse
  uint64_t allocations = 0;         ///< blocks handed out so far
  uint64_t system_allocations = 0;  ///< those of them that no cache could serve
};

/// Reads the counters of the allocator.
MemoryStats memory_stats();
/// Lets `peak` start again from what is in use now.
void reset_peak_memory();
/// Returns cached memory to the system. Blocks that other threads keep follow when those threads
/// next free a block to the shared cache.
void release_cached_memory();
/// Bounds the shared cache; the oldest blocks go first. Starts as a quarter of the machine's
/// memory.
void set_memory_cache_limit(size_t bytes);

namespace base {

/// Memory for `bytes` (0 is allowed), aligned to 64 bytes and not initialised. If the system has no
/// more, cached memory is returned to it first; then this throws Error, and nothing has changed for
/// anybody else.
[[nodiscard]] void* allocate(size_t bytes);
/// Takes back memory of allocate(bytes), on any thread. Null is ignored.
void deallocate(void* memory, size_t bytes) noexcept;

/// Returns the oldest blocks of the shared cache to the system until at most `keep` bytes are left
/// in it.
void trim(size_t keep);

}  // namespace base
}  // namespace grapnel
