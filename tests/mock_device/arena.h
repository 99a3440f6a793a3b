/// Memory of mock devices: mapped twice, once for addresses that nobody may touch, once to work in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

namespace grapnel::mock {

class Arena {
 public:
  Arena();
  /// An address to hand out. Fails when all is in use.
  void* take(size_t bytes);
  void give_back(void* address, size_t bytes);
  /// Where the memory behind an address that was handed out lies.
  void* behind(const void* address) const {
    return const_cast<char*>(static_cast<const char*>(address)) + distance_;
  }
  uint64_t in_use();

 private:
  std::mutex mutex_;
  char* begin_ = nullptr;
  ptrdiff_t distance_ = 0;
  size_t used_ = 0;  ///< from the beginning, never given back
  uint64_t in_use_ = 0;
  /// Freed, by size. The oldest comes first, so that a stale address meets nobody else for long.
  std::map<size_t, std::deque<void*>> freed_;
};

}  // namespace grapnel::mock
