#include "grapnel/base/block_cache.h"

#include <new>

#include "grapnel/base/size_class.h"

namespace grapnel::base {

static_assert(sizeof(CachedBlock) <= size_class_bytes(0));
static_assert(size_class_of(size_t{1} << 47) < BlockCache::classes);

void BlockCache::put(void* memory, uint32_t size_class) noexcept {
  CachedBlock*& top = newest_of_class_[size_class];
  auto* const block = new (memory) CachedBlock{top, nullptr, nullptr, newest_, size_class};
  if (top != nullptr) top->prev_of_class = block;
  top = block;
  (newest_ != nullptr ? newest_->newer : oldest_) = block;
  newest_ = block;
  bytes_ += size_class_bytes(size_class);
}

void* BlockCache::take(uint32_t size_class) noexcept {
  CachedBlock* const block = newest_of_class_[size_class];
  if (block != nullptr) unlink(block);
  return block;
}

CachedBlock* BlockCache::evict(size_t keep) noexcept {
  CachedBlock* evicted = nullptr;
  while (bytes_ > keep) {
    CachedBlock* const block = oldest_;
    unlink(block);
    block->older = evicted;
    evicted = block;
  }
  return evicted;
}

void BlockCache::unlink(CachedBlock* block) noexcept {
  (block->prev_of_class != nullptr ? block->prev_of_class->next_of_class
                                   : newest_of_class_[block->size_class]) = block->next_of_class;
  if (block->next_of_class != nullptr) block->next_of_class->prev_of_class = block->prev_of_class;
  (block->newer != nullptr ? block->newer->older : newest_) = block->older;
  (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
  bytes_ -= size_class_bytes(block->size_class);
}

}  // namespace grapnel::base
