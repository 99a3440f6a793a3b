/// The argument of tensor(): a number, nested braces of numbers, or a vector, span or array of
/// them.
#pragma once

#include <array>
#include <initializer_list>
#include <ranges>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "grapnel/tensor/scalar_value.h"
#include "grapnel/tensor/shape.h"

namespace grapnel {

template <class T>
concept Element = std::is_arithmetic_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

class NestedValues {
 public:
  template <Element T>
  NestedValues(T value) : data_(One{Scalar(value), natural_dtype<T>()}) {}
  NestedValues(std::initializer_list<NestedValues> items)
      : data_(std::vector<NestedValues>(items)) {}
  template <Element T>
  NestedValues(const std::vector<T>& items) : NestedValues(std::span<const T>(items)) {}
  NestedValues(const std::vector<bool>& items)
      : data_(std::vector<NestedValues>(items.begin(), items.end())) {}
  template <Element T, size_t N>
  NestedValues(const std::array<T, N>& items) : NestedValues(std::span<const T>(items)) {}
  template <Element T, size_t N>
  NestedValues(std::span<const T, N> items)
      : NestedValues(
            items.data(), items.size(),
            [](const void* data, size_t i) { return Scalar(static_cast<const T*>(data)[i]); },
            natural_dtype<T>()) {}
  template <Element T, size_t N>
    requires(!std::is_const_v<T>)
  NestedValues(std::span<T, N> items) : NestedValues(std::span<const T>(items)) {}
  template <Element T>
  NestedValues(const std::vector<std::vector<T>>& rows)
      : data_(std::vector<NestedValues>(rows.begin(), rows.end())) {}

  /// Fails, naming the place, when sub-lists differ in shape.
  Shape shape() const;
  /// The common type of all numbers; the default floating type when there are none.
  DType dtype() const;
  /// Calls visit(number) in row-major order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (const One* one = std::get_if<One>(&data_)) visit(one->value);
    else if (const Row* row = std::get_if<Row>(&data_))
      for (size_t i = 0; i < row->size; ++i) visit(row->at(row->data, i));
    else
      for (const NestedValues& item : std::get<std::vector<NestedValues>>(data_))
        item.for_each(visit);
  }

 private:
  struct One {
    Scalar value;
    DType dtype;
  };
  /// Borrowed from the caller for the duration of the call.
  struct Row {
    const void* data;
    size_t size;
    Scalar (*at)(const void*, size_t);
    DType dtype;
  };

  NestedValues(const void* data, size_t size, Scalar (*at)(const void*, size_t), DType dtype)
      : data_(Row{data, size, at, dtype}) {}

  /// As LibTorch: integers become i64 and float and double the default type.
  template <class T>
  static DType natural_dtype() {
    if constexpr (std::is_same_v<T, bool>) return kBool;
    else if constexpr (std::is_same_v<T, uint8_t>) return kUInt8;
    else if constexpr (std::is_integral_v<T>) return kInt64;
    else if constexpr (std::is_floating_point_v<T>) return get_default_dtype();
    else return dtype_v<T>;
  }
  Shape shape_at(const std::vector<int64_t>& path) const;
  void find_dtype(DType& common, bool& any) const;

  std::variant<One, Row, std::vector<NestedValues>> data_;
};

}  // namespace grapnel
