#include "grapnel/tensor/storage.h"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "grapnel/base/allocator.h"
#include "grapnel/base/pool.h"

namespace grapnel {

StoragePtr Storage::create(size_t bytes) {
  StoragePtr s = create_lazy(bytes);
  s->allocate();
  return s;
}

StoragePtr Storage::create_lazy(size_t bytes) {
  auto* s = new (base::pool_allocate(sizeof(Storage))) Storage;
  s->bytes_ = bytes;
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
  if (pending_) pending_->materialize(*this);
  if (!data_) allocate();
}

StoragePtr Storage::borrow(void* data, size_t bytes, std::function<void(void*)> deleter) {
  auto kept = deleter ? std::make_unique<std::function<void(void*)>>(std::move(deleter)) : nullptr;
  auto* s = new (base::pool_allocate(sizeof(Storage))) Storage;
  s->bytes_ = bytes;
  s->data_ = data;
  s->deleter_ = kept.release();
  s->owner_ = Owner::borrowed;
  return StoragePtr::adopt(s);
}

StoragePtr Storage::lend() {
  // Memory inside the header could not be left to anybody.
  if (const void* inside = data(); owner_ == Owner::inline_data) {
    void* const outside = base::allocate(bytes_);
    std::memcpy(outside, inside, bytes_);
    data_ = outside;
    owner_ = Owner::allocator;
  }
  return borrow(data_, bytes_, [self = StoragePtr(this)](void*) {});
}

void Storage::leave_memory_to(Storage& lent) {
  void* const copy = base::allocate(bytes_);
  std::memcpy(copy, data_, bytes_);
  data_ = copy;
  lent.owner_ = Owner::allocator;
  delete std::exchange(lent.deleter_, nullptr);
}

void Storage::destroy() const noexcept {
  auto* self = const_cast<Storage*>(this);
  if (pending_) {
    pending_->released(*self);
    self->clear_pending();
  }
  if (owner_ == Owner::allocator) base::deallocate(data_, bytes_);
  if (deleter_) {
    std::unique_ptr<std::function<void(void*)>> kept(deleter_);
    (*kept)(data_);
  }
  this->~Storage();
  base::pool_deallocate(const_cast<Storage*>(this), sizeof(Storage));
}

}  // namespace grapnel
