/// Shared memory behind tensors. All views of one tensor share one Storage, and with it the version counter.
///
/// Data of at most kInlineBytes lives inside the header, so a small tensor needs no further allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "grapnel/base/intrusive_ptr.h"
#include "grapnel/tensor/dtype.h"

namespace grapnel {

class Storage {
 public:
  static constexpr size_t kInlineBytes = 64;

  /// Uninitialised memory of `bytes` bytes.
  static IntrusivePtr<Storage> create(size_t bytes);
  /// Borrows memory of the caller; `deleter` runs when the last tensor lets go.
  static IntrusivePtr<Storage> borrow(void* data, size_t bytes, std::function<void(void*)> deleter);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return {}; }
  bool borrowed() const { return owner_ == Owner::borrowed; }

  /// Counts the writes made through any view; saved tensors compare it to notice that they were overwritten.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }
  uint32_t use_count() const { return refs_.use_count(); }

  void intrusive_retain() const noexcept { refs_.retain(); }
  void intrusive_release() const noexcept {
    if (refs_.release()) destroy();
  }

 private:
  enum class Owner : uint8_t { inline_data, allocator, borrowed };
  Storage() = default;
  void destroy() const noexcept;

  mutable RefCount refs_;
  std::atomic<uint32_t> version_{0};
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::function<void(void*)>* deleter_ = nullptr;
  Owner owner_ = Owner::inline_data;
  alignas(16) std::byte inline_[kInlineBytes];
};
using StoragePtr = IntrusivePtr<Storage>;

}  // namespace grapnel
