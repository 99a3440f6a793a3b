/// Sizes and strides: short lists of integers that live inside the tensor header, and a borrowed
/// view of such a list.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <vector>

namespace grapnel {

/// The largest number of dimensions a tensor can have. A fixed bound keeps headers free of
/// allocation.
inline constexpr int kMaxRank = 12;

/// At most kMaxRank integers, stored in place. Trivially copyable.
class Shape {
 public:
  constexpr Shape() = default;
  Shape(std::initializer_list<int64_t> values);
  explicit Shape(std::span<const int64_t> values);
  /// `count` copies of `value`.
  static Shape filled(int count, int64_t value);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t& operator[](int i) { return values_[i]; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t* begin() { return values_; }
  int64_t* end() { return values_ + size_; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + size_; }
  int64_t back() const { return values_[size_ - 1]; }
  void push_back(int64_t value);
  void insert(int position, int64_t value);
  void erase(int position);
  void resize(int count);
  void assign(const int64_t* values, int count) {
    size_ = static_cast<uint8_t>(count);
    for (int i = 0; i < count; ++i) values_[i] = values[i];
  }
  /// Becomes the strides of a dense tensor of these sizes.
  void assign_contiguous(const Shape& sizes) {
    size_ = sizes.size_;
    int64_t stride = 1;
    for (int i = size_ - 1; i >= 0; --i) {
      values_[i] = stride;
      if (sizes.values_[i] > 1) stride *= sizes.values_[i];
    }
  }
  std::vector<int64_t> vec() const { return {begin(), end()}; }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  int64_t values_[kMaxRank];
  uint8_t size_ = 0;
};

/// A borrowed list of integers, as arguments take it. Do not keep one beyond the call.
class IntArrayRef {
 public:
  IntArrayRef() = default;
  IntArrayRef(const int64_t* data, size_t size) : data_(data), size_(size) {}
  IntArrayRef(std::initializer_list<int64_t> list) {
    data_ = list.begin();
    size_ = list.size();
  }
  IntArrayRef(const std::vector<int64_t>& v) : data_(v.data()), size_(v.size()) {}
  IntArrayRef(const Shape& s) : data_(s.begin()), size_(static_cast<size_t>(s.size())) {}
  IntArrayRef(std::span<const int64_t> s) : data_(s.data()), size_(s.size()) {}
  IntArrayRef(const int64_t& one) : data_(&one), size_(1) {}
  template <size_t N>
  IntArrayRef(const std::array<int64_t, N>& a) : data_(a.data()), size_(N) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* data() const { return data_; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  int64_t operator[](size_t i) const { return data_[i]; }
  int64_t back() const { return data_[size_ - 1]; }
  int64_t front() const { return data_[0]; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  operator std::span<const int64_t>() const { return {data_, size_}; }
  friend bool operator==(IntArrayRef a, IntArrayRef b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (a.data_[i] != b.data_[i]) return false;
    return true;
  }
  friend bool operator==(IntArrayRef a, const Shape& b) { return a == IntArrayRef(b); }

 private:
  const int64_t* data_ = nullptr;
  size_t size_ = 0;
};
using IntList = IntArrayRef;

std::ostream& operator<<(std::ostream& out, const Shape& s);
std::ostream& operator<<(std::ostream& out, IntArrayRef s);

/// Product of the sizes; fails when it or a size does not fit.
int64_t checked_numel(IntArrayRef sizes, const char* what);
/// Row-major strides.
Shape contiguous_strides(const Shape& sizes);
/// The common shape of two, by PyTorch's broadcasting; `what` names the op in the error.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* what);
/// Maps a dimension in [-rank, rank) to [0, rank); a 0-dimensional tensor counts as having one.
int wrap_dim(int64_t dim, int rank, const char* what);
/// Sorted, distinct, wrapped dimensions; an empty list means all.
Shape wrap_dims(IntArrayRef dims, int rank, const char* what);
/// Resolves one -1 in `sizes` so that the product is `numel`.
Shape infer_view_size(IntArrayRef sizes, int64_t numel);
/// Strides that view (sizes, strides) as `target` without a copy. Returns false when there are
/// none.
bool view_strides(const Shape& sizes, const Shape& strides, const Shape& target, Shape& out);

}  // namespace grapnel
