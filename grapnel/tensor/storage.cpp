#include "grapnel/tensor/storage.h"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "grapnel/base/allocator.h"
#include "grapnel/base/error.h"
#include "grapnel/base/pool.h"
#include "grapnel/tensor/device_memory.h"

namespace grapnel {

StoragePtr Storage::create(size_t bytes, Device device) {
  StoragePtr s = create_lazy(bytes, device);
  if (device.is_cpu()) s->allocate();
  else s->make_ready();
  return s;
}

StoragePtr Storage::create_lazy(size_t bytes, Device device) {
  auto* s = new (base::pool_allocate(sizeof(Storage))) Storage;
  s->bytes_ = bytes;
  s->device_ = device;
  if (!device.is_cpu()) [[unlikely]]
    s->device_memory_ = nullptr;
  return StoragePtr::adopt(s);
}

void Storage::allocate() {
  if (bytes_ <= kInlineBytes) {
    data_ = inline_;
  } else {
    data_ = base::allocate(bytes_);
    owner_ = Owner::allocator;
  }
}

void Storage::show_data() {
  if (!device_.is_cpu())
    fail("data: these values are on ", device_, ".\nCopy them first: t.cpu().");
  if (pending_) pending_->materialize(*this);
  if (!data_) allocate();
}

void* Storage::device_address() {
  if (pending_) pending_->materialize(*this);
  if (!device_memory_) {
    DeviceMemory& memory = memory_of(device_);
    const QueueId queue = memory.current_queue();
    device_memory_ = memory.allocate(bytes_, queue);
    home_.store(queue, std::memory_order_relaxed);
    owner_ = Owner::device;
  }
  return device_memory_;
}

void Storage::use_on(QueueId queue) {
  if (device_.is_cpu() || !device_address()) return;
  const QueueId before = home_.exchange(queue, std::memory_order_relaxed);
  if (before != queue) memory_of(device_).wait_for(queue, before);
}

StoragePtr Storage::borrow(void* data, size_t bytes, std::function<void(void*)> deleter,
                           Device device) {
  auto kept = deleter ? std::make_unique<std::function<void(void*)>>(std::move(deleter)) : nullptr;
  auto* s = new (base::pool_allocate(sizeof(Storage))) Storage;
  s->bytes_ = bytes;
  s->device_ = device;
  (device.is_cpu() ? s->data_ : s->device_memory_) = data;
  s->deleter_ = kept.release();
  s->owner_ = Owner::borrowed;
  return StoragePtr::adopt(s);
}

StoragePtr Storage::lend() {
  auto keep = [self = StoragePtr(this)](void*) {};
  if (!device_.is_cpu()) {
    StoragePtr lent = borrow(address(), bytes_, std::move(keep), device_);
    lent->home_.store(home(), std::memory_order_relaxed);
    return lent;
  }
  // Memory inside the header could not be left to anybody.
  if (const void* inside = host(); owner_ == Owner::inline_data) {
    void* const outside = base::allocate(bytes_);
    std::memcpy(outside, inside, bytes_);
    data_ = outside;
    owner_ = Owner::allocator;
  }
  return borrow(data_, bytes_, std::move(keep), device_);
}

void Storage::leave_memory_to(Storage& lent) {
  if (device_.is_cpu()) {
    void* const copy = base::allocate(bytes_);
    std::memcpy(copy, data_, bytes_);
    data_ = copy;
  } else {
    DeviceMemory& memory = memory_of(device_);
    const QueueId queue = memory.current_queue();
    lent.use_on(queue);  // what the borrower's queue still writes is copied, too
    use_on(queue);
    void* const copy = memory.allocate(bytes_, queue);
    memory.copy(copy, device_memory_, bytes_, queue);
    device_memory_ = copy;
  }
  lent.owner_ = owner_;
  delete std::exchange(lent.deleter_, nullptr);
}

void Storage::destroy() const noexcept {
  auto* self = const_cast<Storage*>(this);
  if (pending_) {
    pending_->released(*self);
    self->clear_pending();
  }
  if (owner_ != Owner::inline_data) self->release_memory();
  this->~Storage();
  base::pool_deallocate(const_cast<Storage*>(this), sizeof(Storage));
}

void Storage::release_memory() {
  if (owner_ == Owner::allocator) return base::deallocate(data_, bytes_);
  if (owner_ == Owner::device) {
    DeviceMemory& memory = memory_of(device_);
    return memory.deallocate(device_memory_, bytes_, home());
  }
  if (!deleter_) return;
  const std::unique_ptr<std::function<void(void*)>> kept(deleter_);
  (*kept)(device_.is_cpu() ? data_ : device_memory_);
}

}  // namespace grapnel
