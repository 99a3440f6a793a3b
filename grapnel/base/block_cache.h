/// Freed blocks that wait to be used again, newest first, within a bound. The allocator guards it
/// with its lock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grapnel::base {

/// A waiting block; the links are stored in the block itself.
struct CachedBlock {
  CachedBlock* next_of_class;
  CachedBlock* prev_of_class;
  CachedBlock* newer;
  CachedBlock* older;
  uint32_t size_class;
};

class BlockCache {
 public:
  static constexpr uint32_t classes = 160;  // up to 2^47 bytes, all that a program can address

  size_t bytes() const noexcept { return bytes_; }

  void put(void* memory, uint32_t size_class) noexcept;
  /// The block of this class that was freed last, since its contents may still be in the
  /// processor's caches; or null.
  void* take(uint32_t size_class) noexcept;
  /// Removes blocks, oldest first, until at most `keep` bytes are left. They return linked by
  /// `older`. Going by age lets sizes that a program has stopped using make room for those it uses
  /// now.
  CachedBlock* evict(size_t keep) noexcept;

 private:
  void unlink(CachedBlock* block) noexcept;

  CachedBlock* newest_of_class_[classes] = {};
  CachedBlock* newest_ = nullptr;
  CachedBlock* oldest_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace grapnel::base
