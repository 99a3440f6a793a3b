/// RawVector: a vector of plain values that grows without clearing what it grows by.
///
/// For lists that are written once, front to back, in a hot loop: `extend` is a comparison and an
/// addition, where resize of a std::vector calls a function that calls memset. Everything else is
/// as in std::vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace grapnel::base {

template <class T>
  requires std::is_trivially_copyable_v<T>
class RawVector {
 public:
  RawVector() = default;
  RawVector(const RawVector& other) { append(other); }
  RawVector(RawVector&& other) noexcept { swap(other); }
  RawVector& operator=(const RawVector& other) {
    if (this == &other) return *this;
    clear();
    append(other);
    return *this;
  }
  RawVector& operator=(RawVector&& other) noexcept {
    RawVector(std::move(other)).swap(*this);
    return *this;
  }
  ~RawVector() { free(); }

  /// Adds `count` elements with whatever values and returns the first. Pointers into the vector end
  /// with the next call.
  T* extend(size_t count) {
    if (count > static_cast<size_t>(limit_ - end_)) [[unlikely]]
      grow(count);
    return std::exchange(end_, end_ + count);
  }
  /// Adds a copy of `value`, which must not be an element.
  void push_back(const T& value) { *extend(1) = value; }
  void clear() noexcept { end_ = begin_; }
  void reserve(size_t count) {
    if (count > capacity()) grow(count - size());
  }

  size_t size() const noexcept { return static_cast<size_t>(end_ - begin_); }
  size_t capacity() const noexcept { return static_cast<size_t>(limit_ - begin_); }
  bool empty() const noexcept { return begin_ == end_; }
  T* data() noexcept { return begin_; }
  const T* data() const noexcept { return begin_; }
  T* begin() noexcept { return begin_; }
  T* end() noexcept { return end_; }
  const T* begin() const noexcept { return begin_; }
  const T* end() const noexcept { return end_; }
  T& operator[](size_t i) noexcept { return begin_[i]; }
  const T& operator[](size_t i) const noexcept { return begin_[i]; }
  const T& back() const noexcept { return end_[-1]; }
  void swap(RawVector& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(end_, other.end_);
    std::swap(limit_, other.limit_);
  }
  friend bool operator==(const RawVector& a, const RawVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void append(const RawVector& other) {
    if (!other.empty())
      std::memcpy(static_cast<void*>(extend(other.size())), other.begin_, other.size() * sizeof(T));
  }
  [[gnu::noinline]] void grow(size_t count) {
    const size_t used = size(), wanted = std::max({used + count, 2 * capacity(), size_t{16}});
    T* const larger = std::allocator<T>().allocate(wanted);
    if (used > 0) std::memcpy(static_cast<void*>(larger), begin_, used * sizeof(T));
    free();
    begin_ = larger;
    end_ = larger + used;
    limit_ = larger + wanted;
  }
  void free() noexcept {
    if (begin_) std::allocator<T>().deallocate(begin_, capacity());
  }

  T* begin_ = nullptr;
  T* end_ = nullptr;
  T* limit_ = nullptr;
};

}  // namespace grapnel::base
