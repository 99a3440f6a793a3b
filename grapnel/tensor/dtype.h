/// Element types, what each promises, and how two of them combine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

#include "grapnel/base/half.h"

namespace grapnel {

/// The types of elements.
enum class DType : uint8_t { Bool, UInt8, Int32, Int64, Float16, BFloat16, Float32, Float64 };
using ScalarType = DType;
inline constexpr int kDTypeCount = 8;

inline constexpr DType kBool = DType::Bool;
inline constexpr DType kUInt8 = DType::UInt8, kByte = DType::UInt8;
inline constexpr DType kInt32 = DType::Int32, kInt = DType::Int32;
inline constexpr DType kInt64 = DType::Int64, kLong = DType::Int64;
inline constexpr DType kFloat16 = DType::Float16, kHalf = DType::Float16;
inline constexpr DType kBFloat16 = DType::BFloat16;
inline constexpr DType kFloat32 = DType::Float32, kFloat = DType::Float32;
inline constexpr DType kFloat64 = DType::Float64, kDouble = DType::Float64;

/// Bytes of one element.
constexpr size_t element_size(DType t) {
  constexpr uint8_t sizes[] = {1, 1, 4, 8, 2, 2, 4, 8};
  return sizes[static_cast<int>(t)];
}
/// Whether a type has fractions.
constexpr bool is_floating(DType t) { return t >= DType::Float16; }

/// Short name used in graphs and messages: f32, bf16, i64, bool.
std::string_view name(DType t);
std::ostream& operator<<(std::ostream& out, DType t);

/// The type that holds both, PyTorch's rules for two tensors with dimensions.
DType promote_types(DType a, DType b);
/// Whether a result of type `from` may be written into a tensor of type `to` in place.
bool can_cast(DType from, DType to);

/// The type arithmetic is done in. Narrow types are widened on load and rounded once on store, so
/// every kernel exists for three types only, and fused code knows exactly where to round.
enum class Compute : uint8_t { F32, F64, I64 };
/// The type that arithmetic on a type is done in.
constexpr Compute compute_type(DType t) {
  return t == DType::Float64 ? Compute::F64 : is_floating(t) ? Compute::F32 : Compute::I64;
}
/// The type of elements that a C++ type stands for.
constexpr DType dtype_of(Compute c) {
  return c == Compute::F64 ? DType::Float64 : c == Compute::F32 ? DType::Float32 : DType::Int64;
}

/// The type of elements that a C++ type stands for.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::Bool;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::UInt8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::Int32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::Int64;
};
template <>
struct DTypeOf<long long> {
  static constexpr DType value = DType::Int64;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::Float16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::BFloat16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::Float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::Float64;
};
template <class T>
inline constexpr DType dtype_v = DTypeOf<T>::value;

/// Calls `fn` with the C++ type of `t` as its template argument.
template <class Fn>
decltype(auto) visit_dtype(DType t, Fn&& fn) {
  switch (t) {
    case DType::Bool: return fn.template operator()<bool>();
    case DType::UInt8: return fn.template operator()<uint8_t>();
    case DType::Int32: return fn.template operator()<int32_t>();
    case DType::Int64: return fn.template operator()<int64_t>();
    case DType::Float16: return fn.template operator()<Half>();
    case DType::BFloat16: return fn.template operator()<BFloat16>();
    case DType::Float32: return fn.template operator()<float>();
    case DType::Float64: return fn.template operator()<double>();
  }
  __builtin_unreachable();
}

/// float unless changed; the type of `tensor({0.5})`, `rand` and friends.
DType get_default_dtype();
/// The type that factories and numbers take unless told otherwise.
void set_default_dtype(DType t);

}  // namespace grapnel
