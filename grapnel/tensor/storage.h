/// Shared memory behind tensors. All views of one tensor share one Storage, and with it the version
/// counter.
///
/// Data of at most kInlineBytes lives inside the header, so a small tensor needs no further
/// allocation.
///
/// Note [Pending storage]
/// While a recorder is open, the memory of some storages is not there yet, or holds values that a
/// recorded write will replace. Such a storage is pending: it has an owner and shows no data.
/// Asking for the data asks the owner to make it, so code that reads memory needs to know nothing
/// about recording. Versions, by contrast, move when a write is recorded, as in eager mode.
///
/// Note [Host and address]
/// host() is memory that code on the CPU may touch; address() is where the bytes lie on any device,
/// and nothing but a number to the CPU. A storage of a device never shows data, so host() costs one
/// look wherever the bytes are, and host code that forgot about devices gets an Error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "grapnel/base/intrusive_ptr.h"
#include "grapnel/tensor/device.h"

namespace grapnel {

class Storage;

/// Whoever can bring the values of a pending storage about, or say why it cannot.
class PendingOwner {
 public:
  /// Makes address() point to up-to-date values, or throws.
  virtual void materialize(Storage& storage) = 0;
  /// Called when the last tensor over a pending storage is gone.
  virtual void released(Storage& storage) noexcept = 0;

 protected:
  ~PendingOwner() = default;
};

class Storage {
 public:
  static constexpr size_t kInlineBytes = 64;

  /// Uninitialised memory of `bytes` bytes.
  static IntrusivePtr<Storage> create(size_t bytes, Device device);
  /// Borrows memory of the caller; `deleter` runs when the last tensor lets go.
  static IntrusivePtr<Storage> borrow(void* data, size_t bytes, std::function<void(void*)> deleter,
                                      Device device);

  /// A storage whose memory is allocated when somebody first asks for it.
  static IntrusivePtr<Storage> create_lazy(size_t bytes, Device device);

  // --- Note [Host and address] ---
  /// The memory, for code on the CPU. Fails on a device.
  void* host() const {
    if (!data_) [[unlikely]]
      const_cast<Storage*>(this)->show_data();
    return data_;
  }
  /// Where the memory lies, on any device.
  void* address() const {
    return device_.is_cpu() ? host() : const_cast<Storage*>(this)->device_address();
  }
  /// The same for whoever only needs it to be there, with up-to-date values.
  void make_ready() const { (void)address(); }
  /// The queue that used the memory last; see Note [Home queues] in tensor/device_memory.h. Storages of the CPU have none.
  QueueId home() const { return home_.load(std::memory_order_relaxed); }
  /// Before work on the memory is put into `queue`.
  void use_on(QueueId queue);
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool borrowed() const { return owner_ == Owner::borrowed; }
  /// Whether its owner may change the values behind our back while a recorded call waits to run.
  bool may_change_unseen() const { return borrowed() && !stable_; }
  /// The owner of borrowed memory promises not to.
  void declare_stable() { stable_ = true; }

  /// Counts the writes made through any view; saved tensors compare it to notice that they were
  /// overwritten.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }
  void set_version(uint32_t version) { version_.store(version, std::memory_order_relaxed); }
  uint32_t use_count() const { return refs_.use_count(); }
  /// Another storage over the same memory, which this one outlives. Not for borrowed memory.
  IntrusivePtr<Storage> lend();
  /// The memory belongs to `lent`, which came from lend(), from now on; this one has a copy. If
  /// memory runs out they go on sharing.
  void leave_memory_to(Storage& lent);

  // --- Note [Pending storage] ---
  PendingOwner* pending() const { return pending_; }
  uint32_t pending_slot() const { return slot_; }
  void set_pending(PendingOwner* owner, uint32_t slot) {
    if (data_) hidden_ = std::exchange(data_, nullptr);
    pending_ = owner;
    slot_ = slot;
  }
  /// Shows the data again, whatever it holds.
  void clear_pending() {
    pending_ = nullptr;
    if (hidden_) data_ = std::exchange(hidden_, nullptr);
  }

  void intrusive_retain() const noexcept { refs_.retain(); }
  void intrusive_release() const noexcept {
    if (refs_.release()) destroy();
  }

 private:
  enum class Owner : uint8_t { inline_data, allocator, borrowed, device };
  Storage() {}
  void destroy() const noexcept;
  void show_data();
  void allocate();
  void* device_address();
  void release_memory();

  mutable RefCount refs_;
  std::atomic<uint32_t> version_{0};
  /// Null while pending, until a lazy storage is first used, and always on a device.
  void* data_ = nullptr;
  void* hidden_ = nullptr;  ///< the memory of a pending storage that has some
  PendingOwner* pending_ = nullptr;
  size_t bytes_ = 0;
  std::function<void(void*)>* deleter_ = nullptr;
  uint32_t slot_ = 0;  ///< the owner's number for this storage
  Owner owner_ = Owner::inline_data;
  bool stable_ = false;  ///< of borrowed memory
  Device device_;
  /// Two threads that use a storage unsynchronised are as wrong as on the CPU.
  std::atomic<QueueId> home_{0};
  union {
    alignas(16) std::byte inline_[kInlineBytes];
    void* device_memory_;  ///< null until a lazy storage is first used
  };
};
static_assert(sizeof(Storage) == 128);
using StoragePtr = IntrusivePtr<Storage>;

/// Called before the user gets a raw pointer to memory, which he may read or write behind our back.
/// Defined in capture/: recorded work on that memory runs first.
void before_raw_access(const Storage& storage);

}  // namespace grapnel
