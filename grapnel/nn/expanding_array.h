/// ExpandingArray: one number for all dimensions, or one for each: `.stride(2)`, `.stride({2, 1})`.
#pragma once

#include <array>
#include <initializer_list>
#include <ostream>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/tensor/shape.h"

namespace grapnel::nn {

template <size_t D, class T = int64_t>
class ExpandingArray {
 public:
  ExpandingArray(T all) { values_.fill(all); }
  ExpandingArray(std::initializer_list<T> each) : ExpandingArray(std::vector<T>(each)) {}
  ExpandingArray(const std::array<T, D>& each) : values_(each) {}
  ExpandingArray(const std::vector<T>& each) {
    if (each.size() == 1) {
      values_.fill(each[0]);
      return;
    }
    check(each.size() == D, "expected 1 or ", D, " numbers, one per dimension, got ", each.size(),
          ".");
    for (size_t i = 0; i < D; ++i) values_[i] = each[i];
  }
  T operator[](size_t i) const { return values_[i]; }
  T& operator[](size_t i) { return values_[i]; }
  const std::array<T, D>& operator*() const { return values_; }
  std::array<T, D>& operator*() { return values_; }
  const std::array<T, D>* operator->() const { return &values_; }
  std::array<T, D>* operator->() { return &values_; }
  constexpr size_t size() const { return D; }
  operator IntArrayRef() const
    requires std::same_as<T, int64_t>
  {
    return values_;
  }

 private:
  std::array<T, D> values_;
};

template <size_t D, class T>
std::ostream& operator<<(std::ostream& out, const ExpandingArray<D, T>& a) {
  out << '[';
  for (size_t i = 0; i < D; ++i) out << (i ? ", " : "") << a[i];
  return out << ']';
}

}  // namespace grapnel::nn
