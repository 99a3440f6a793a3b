/// The header behind a Tensor handle. Only the library touches it.
#pragma once

#include <cstdint>
#include <span>

#include "grapnel/base/intrusive_ptr.h"
#include "grapnel/tensor/dtype.h"
#include "grapnel/tensor/shape.h"
#include "grapnel/tensor/storage.h"

namespace grapnel {

/// A tensor's place in the graph; defined and managed in autograd/.
struct AutogradMeta;
/// Called when a tensor header with a place in the graph dies.
void release_autograd_meta(AutogradMeta* meta) noexcept;

struct TensorImpl {
  mutable RefCount refs;
  DType dtype = DType::Float32;
  bool wrapped_number = false;  ///< stands for a plain number: never packed, weak in type promotion
  bool requires_grad = false;   ///< a leaf that wants a gradient, or the result of a recorded op
  bool differentiable_view = false;
  bool inference = false;    ///< made in inference mode: can never be recorded
  bool picked_copy = false;  ///< what gather and the like picked out: nothing to assign to
  int64_t numel = 0;
  int64_t offset = 0;  ///< in elements, from the start of the storage
  StoragePtr storage;
  AutogradMeta* autograd = nullptr;
  /// The object that stands for this header in another language, which looks after both: see
  /// base/foreign.h.
  void* wrapper = nullptr;
  Shape sizes;
  Shape strides;

  /// A header over `storage`. It comes from the pool of small objects.
  static IntrusivePtr<TensorImpl> create(StoragePtr storage, DType dtype, const Shape& sizes,
                                         const Shape& strides, int64_t offset = 0);
  /// The same for whoever keeps sizes and strides in lists of his own.
  static IntrusivePtr<TensorImpl> create_from(StoragePtr storage, DType dtype,
                                              std::span<const int64_t> sizes,
                                              std::span<const int64_t> strides, int64_t offset);
  /// A contiguous tensor with memory of its own, uninitialised.
  static IntrusivePtr<TensorImpl> empty(const Shape& sizes, DType dtype, Device device);
  /// The same, with memory that is allocated when somebody first asks for it.
  static IntrusivePtr<TensorImpl> lazy(const Shape& sizes, DType dtype, Device device);

  /// The first element in memory of the CPU; fails on a device. See Note [Host and address].
  char* host() const {
    return static_cast<char*>(storage->host()) + offset * static_cast<int64_t>(element_size(dtype));
  }
  /// Where the first element lies, on any device.
  char* address() const {
    return static_cast<char*>(storage->address()) +
           offset * static_cast<int64_t>(element_size(dtype));
  }
  bool is_contiguous() const {
    int64_t expected = 1;
    for (int i = sizes.size() - 1; i >= 0; --i) {
      if (sizes[i] == 1) continue;
      if (strides[i] != expected) return numel == 0;
      expected *= sizes[i];
    }
    return true;
  }

  void intrusive_retain() const noexcept { refs.retain(); }
  void intrusive_release() const noexcept {
    if (refs.release()) destroy();
  }

 private:
  TensorImpl() = default;
  static IntrusivePtr<TensorImpl> fresh(StoragePtr (*make)(size_t, Device), const Shape& sizes,
                                        DType dtype, Device device);
  void destroy() const noexcept;
};
static_assert(sizeof(TensorImpl) == 264);

}  // namespace grapnel
