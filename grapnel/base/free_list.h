/// A stack of unused blocks of one size, linked through the blocks themselves. One thread owns it.
#pragma once

#include <cstdint>
#include <new>
#include <utility>

namespace grapnel::base {

struct FreeBlock {
  FreeBlock* next;
};

struct FreeList {
  FreeBlock* head = nullptr;
  uint32_t count = 0;
  /// The owner keeps at most this many. A list with limit 0 is always empty and always full, so
  /// both fast paths leave it alone: that is how a thread without lists of its own is represented.
  uint32_t limit = 0;

  void push(void* memory) noexcept {
    head = new (memory) FreeBlock{head};
    ++count;
  }
  void* pop() noexcept {
    --count;
    return std::exchange(head, head->next);
  }
  /// Cuts off the first n blocks (1 <= n <= count) and returns them as a chain of their own.
  FreeBlock* split(uint32_t n) noexcept {
    FreeBlock* last = head;
    for (uint32_t i = 1; i < n; ++i) last = last->next;
    count -= n;
    return std::exchange(head, std::exchange(last->next, nullptr));
  }
};

}  // namespace grapnel::base
