/// What a factory makes: dtype, device, and whether the result is a leaf that wants a gradient.
#pragma once

#include <optional>
#include <ostream>

#include "grapnel/tensor/device.h"
#include "grapnel/tensor/dtype.h"

namespace grapnel {

/// How elements lie in memory: by strides, always. LibTorch calls it Layout.
enum class MemoryLayout : uint8_t { Strided };
inline constexpr MemoryLayout kStrided = MemoryLayout::Strided;

/// Type, device and whether a gradient is required, for functions that make tensors.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(DType t) : dtype_(t) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(DeviceType d) : device_(d) {}
  TensorOptions(MemoryLayout) {}

  TensorOptions dtype(DType t) const { return with(&TensorOptions::dtype_, std::optional(t)); }
  TensorOptions device(DeviceType d, int8_t index) const { return device(Device(d, index)); }
  TensorOptions device(Device d) const { return with(&TensorOptions::device_, std::optional(d)); }
  TensorOptions requires_grad(bool on) const { return with(&TensorOptions::requires_grad_, on); }

  bool has_dtype() const { return dtype_.has_value(); }
  DType dtype_or(DType fallback) const { return dtype_.value_or(fallback); }
  DType dtype() const { return dtype_.value_or(get_default_dtype()); }
  bool has_device() const { return device_.has_value(); }
  Device device_or(Device fallback) const { return device_.value_or(fallback); }
  Device device() const { return device_ ? *device_ : get_default_device(); }
  bool requires_grad() const { return requires_grad_; }
  /// The only layout there is; accepted for LibTorch's sake.
  TensorOptions layout(MemoryLayout) const { return *this; }
  MemoryLayout layout() const { return MemoryLayout::Strided; }
  /// Memory is never pinned; accepted for LibTorch's sake.
  TensorOptions pinned_memory(bool) const { return *this; }
  bool pinned_memory() const { return false; }

 private:
  template <class Member, class Value>
  TensorOptions with(Member member, Value value) const {
    TensorOptions copy = *this;
    copy.*member = value;
    return copy;
  }
  std::optional<DType> dtype_;
  std::optional<Device> device_;
  bool requires_grad_ = false;
};

/// `ones({2, 2}, requires_grad())`: a leaf that wants a gradient.
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }
/// Options that name a type.
inline TensorOptions dtype(DType t) { return TensorOptions().dtype(t); }
/// Options that name a device.
inline TensorOptions device(Device d) { return TensorOptions().device(d); }
/// Options that name a layout.
inline TensorOptions layout(MemoryLayout l) { return TensorOptions().layout(l); }
/// All of it, as text.
std::ostream& operator<<(std::ostream& out, const TensorOptions& options);

}  // namespace grapnel
