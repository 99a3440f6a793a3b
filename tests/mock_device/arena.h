/// Memory of mock devices: mapped twice, once for addresses that nobody may touch, once to work in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "grapnel/tensor/device_memory.h"

namespace grapnel::mock {

class Arena {
 public:
  Arena();
  /// An address to hand out, which `queue` may use. Fails when all is in use.
  void* take(size_t bytes, QueueId queue);
  /// For later work of `queue`.
  void give_back(void* address, size_t bytes, QueueId queue);
  /// Where the memory behind an address that was handed out lies.
  void* behind(const void* address) const {
    return const_cast<char*>(static_cast<const char*>(address)) + distance_;
  }
  MemoryStats stats() const;
  /// Forgets what was freed; its memory goes back to the system.
  void trim();

 private:
  mutable std::mutex mutex_;
  char* begin_ = nullptr;
  ptrdiff_t distance_ = 0;
  size_t used_ = 0;  ///< from the beginning, never given back
  MemoryStats stats_;
  /// Freed, by size and queue. The oldest comes first, so that a stale address meets nobody else for
  /// long.
  std::map<std::pair<size_t, QueueId>, std::deque<void*>> freed_;
};

}  // namespace grapnel::mock
