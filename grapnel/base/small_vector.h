/// A vector whose first N elements live inside it: shapes, edges and argument lists rarely need the
/// heap.
///
/// It behaves like std::vector (references die when it grows) with two differences: moving a vector
/// that has not spilled moves its elements, and elements must be movable without throwing, so
/// growing never loses one.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "grapnel/base/error.h"

namespace grapnel {

template <class T, size_t N>
class SmallVector {
  static_assert(N > 0, "a SmallVector without inline elements is a std::vector");
  static_assert(std::is_nothrow_move_constructible_v<T>,
                "elements must be movable without throwing");

 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using pointer = T*;
  using const_pointer = const T*;
  using iterator = T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;

  // Not defaulted: where a vector is value-initialised, all its memory would be cleared first.
  SmallVector() noexcept {}
  explicit SmallVector(size_t count) : SmallVector() { resize(count); }
  SmallVector(size_t count, const T& value) : SmallVector() { resize(count, value); }
  SmallVector(std::initializer_list<T> items) : SmallVector(items.begin(), items.end()) {}
  // A delegating constructor runs the destructor when the rest of it throws.
  template <std::input_iterator It>
  SmallVector(It first, It last) : SmallVector() {
    append(first, last);
  }
  template <size_t Extent>
  explicit SmallVector(std::span<const T, Extent> items)
      : SmallVector(items.begin(), items.end()) {}
  template <size_t Extent>
  explicit SmallVector(std::span<T, Extent> items) : SmallVector(items.begin(), items.end()) {}

  SmallVector(const SmallVector& other) : SmallVector(other.begin(), other.end()) {}
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) {
      destroy_all();
      take(other);
    }
    return *this;
  }
  SmallVector& operator=(std::initializer_list<T> items) {
    assign(items.begin(), items.end());
    return *this;
  }
  ~SmallVector() { destroy_all(); }

  size_t size() const noexcept { return size_; }
  size_t capacity() const noexcept { return capacity_; }
  bool empty() const noexcept { return size_ == 0; }
  /// True while the elements live inside the object.
  bool is_inline() const noexcept { return data_ == inline_data(); }
  static constexpr size_t max_size() noexcept { return std::numeric_limits<uint32_t>::max(); }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  iterator begin() noexcept { return data_; }
  iterator end() noexcept { return data_ + size_; }
  const_iterator begin() const noexcept { return data_; }
  const_iterator end() const noexcept { return data_ + size_; }
  const_iterator cbegin() const noexcept { return begin(); }
  const_iterator cend() const noexcept { return end(); }
  reverse_iterator rbegin() noexcept { return reverse_iterator(end()); }
  reverse_iterator rend() noexcept { return reverse_iterator(begin()); }
  const_reverse_iterator rbegin() const noexcept { return const_reverse_iterator(end()); }
  const_reverse_iterator rend() const noexcept { return const_reverse_iterator(begin()); }
  T& operator[](size_t i) noexcept { return data_[i]; }
  const T& operator[](size_t i) const noexcept { return data_[i]; }
  T& front() noexcept { return data_[0]; }
  const T& front() const noexcept { return data_[0]; }
  T& back() noexcept { return data_[size_ - 1]; }
  const T& back() const noexcept { return data_[size_ - 1]; }

  void reserve(size_t count) {
    if (count > capacity_) move_to(allocate(count), count);
  }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) [[unlikely]]
      return grow_and_emplace_back(std::forward<Args>(args)...);
    T* const slot = std::construct_at(data_ + size_, std::forward<Args>(args)...);
    ++size_;
    return *slot;
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  void pop_back() noexcept { std::destroy_at(data_ + --size_); }

  /// Adds [first, last), which must not lie in this vector.
  template <std::input_iterator It>
  void append(It first, It last) {
    if constexpr (std::forward_iterator<It>) {
      const auto count = static_cast<size_t>(std::distance(first, last));
      reserve_for(count);
      std::uninitialized_copy(first, last, data_ + size_);
      size_ += static_cast<uint32_t>(count);
    } else {
      for (; first != last; ++first) emplace_back(*first);
    }
  }
  template <std::input_iterator It>
  void assign(It first, It last) {
    clear();
    append(first, last);
  }
  void assign(size_t count, T value) {
    clear();
    resize(count, value);
  }

  iterator insert(const_iterator where, T value) { return emplace(where, std::move(value)); }
  template <std::input_iterator It>
  iterator insert(const_iterator where, It first, It last) {
    const ptrdiff_t at = where - begin();
    const size_t old_size = size_;
    append(first, last);
    std::rotate(begin() + at, begin() + old_size, end());
    return begin() + at;
  }
  iterator insert(const_iterator where, std::initializer_list<T> items) {
    return insert(where, items.begin(), items.end());
  }
  template <class... Args>
  iterator emplace(const_iterator where, Args&&... args) {
    const ptrdiff_t at = where - begin();
    // Made first: the arguments may refer to an element that is about to move.
    T value(std::forward<Args>(args)...);
    reserve_for(1);
    T* const slot = data_ + at;
    relocate(slot, end(), slot + 1);
    std::construct_at(slot, std::move(value));
    ++size_;
    return slot;
  }

  iterator erase(const_iterator where) noexcept { return erase(where, where + 1); }
  iterator erase(const_iterator first, const_iterator last) noexcept {
    T* const hole = begin() + (first - begin());
    T* const tail = begin() + (last - begin());
    std::destroy(hole, tail);
    relocate(tail, end(), hole);
    size_ -= static_cast<uint32_t>(tail - hole);
    return hole;
  }
  void clear() noexcept {
    std::destroy_n(data_, size_);
    size_ = 0;
  }

  /// New elements are value-initialised.
  void resize(size_t count) {
    resize_with(count, [](T* first, size_t n) { std::uninitialized_value_construct_n(first, n); });
  }
  void resize(size_t count, T value) {
    resize_with(count, [&](T* first, size_t n) { std::uninitialized_fill_n(first, n, value); });
  }

  friend void swap(SmallVector& a, SmallVector& b) noexcept {
    SmallVector held(std::move(a));
    a = std::move(b);
    b = std::move(held);
  }

 private:
  T* inline_data() noexcept { return reinterpret_cast<T*>(inline_); }
  const T* inline_data() const noexcept { return reinterpret_cast<const T*>(inline_); }

  static T* allocate(size_t count) {
    check(count <= max_size(), "SmallVector: ", count, " elements asked for, at most ", max_size(),
          " fit.");
    return std::allocator<T>().allocate(count);
  }

  // Moves elements to raw memory that may overlap their own and ends their life at the old place.
  static void relocate(T* first, T* last, T* to) noexcept {
    if constexpr (std::is_trivially_copyable_v<T>) {
      if (first != last) {
        std::memmove(static_cast<void*>(to), first, static_cast<size_t>(last - first) * sizeof(T));
      }
    } else if (to <= first) {
      for (; first != last; ++first, ++to) relocate_one(first, to);
    } else {
      to += last - first;
      while (last != first) relocate_one(--last, --to);
    }
  }
  static void relocate_one(T* from, T* to) noexcept {
    if (from == to) return;
    std::construct_at(to, std::move(*from));
    std::destroy_at(from);
  }

  void move_to(T* buffer, size_t capacity) noexcept {
    relocate(begin(), end(), buffer);
    free_buffer();
    data_ = buffer;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  size_t grown_capacity(size_t extra) const noexcept {
    const size_t needed = size_t{size_} + extra;
    return std::max(needed, std::min(size_t{capacity_} * 2, max_size()));
  }
  void reserve_for(size_t extra) {
    if (extra > size_t{capacity_} - size_) reserve(grown_capacity(extra));
  }
  template <class... Args>
  [[gnu::noinline]] T& grow_and_emplace_back(Args&&... args) {
    const size_t capacity = grown_capacity(1);
    T* const buffer = allocate(capacity);
    // The new element first: its arguments may refer to an old one.
    try {
      std::construct_at(buffer + size_, std::forward<Args>(args)...);
    } catch (...) {
      std::allocator<T>().deallocate(buffer, capacity);
      throw;
    }
    move_to(buffer, capacity);
    return data_[size_++];
  }
  template <class Fill>
  void resize_with(size_t count, Fill fill) {
    if (count > size_) {
      reserve_for(count - size_);
      fill(data_ + size_, count - size_);
    } else {
      std::destroy(data_ + count, data_ + size_);
    }
    size_ = static_cast<uint32_t>(count);
  }

  void take(SmallVector& other) noexcept {
    if (other.is_inline()) {
      relocate(other.begin(), other.end(), inline_data());
      data_ = inline_data();
      capacity_ = N;
    } else {
      data_ = std::exchange(other.data_, other.inline_data());
      capacity_ = std::exchange(other.capacity_, uint32_t{N});
    }
    size_ = std::exchange(other.size_, 0);
  }
  void free_buffer() noexcept {
    if (!is_inline()) std::allocator<T>().deallocate(data_, capacity_);
  }
  void destroy_all() noexcept {
    std::destroy_n(data_, size_);
    free_buffer();
  }

  T* data_ = inline_data();
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

template <class T, size_t N, size_t M>
bool operator==(const SmallVector<T, N>& a, const SmallVector<T, M>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
template <class T, size_t N, size_t M>
auto operator<=>(const SmallVector<T, N>& a, const SmallVector<T, M>& b) {
  return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace grapnel
