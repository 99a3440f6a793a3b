#include "grapnel/tensor/dtype.h"

#include <algorithm>
#include <atomic>

#include "grapnel/base/error.h"

namespace grapnel {

std::string_view name(DType t) {
  constexpr std::string_view names[] = {"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
  return names[static_cast<int>(t)];
}
std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  const DType low = std::min(a, b), high = std::max(a, b);
  // The enumeration is ordered so that the larger wins, with one exception: neither half type holds
  // the other.
  if (low == DType::Float16 && high == DType::BFloat16) return DType::Float32;
  return high;
}

bool can_cast(DType from, DType to) {
  if (is_floating(from)) return is_floating(to);
  return from == DType::Bool || to != DType::Bool;
}

namespace {
std::atomic<DType> default_dtype{DType::Float32};
}
DType get_default_dtype() { return default_dtype.load(std::memory_order_relaxed); }
void set_default_dtype(DType t) {
  check(is_floating(t), "set_default_dtype: got ", t,
        "; the default must be a floating-point type.");
  default_dtype.store(t, std::memory_order_relaxed);
}

}  // namespace grapnel
