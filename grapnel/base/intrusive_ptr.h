/// Shared ownership with the count inside the object: one word per pointer, no control block.
///
/// A type takes part by offering
///   - members `void intrusive_retain() const noexcept` and
///     `void intrusive_release() const noexcept`, or
///   - free functions of the same names that take a `const T*` and are found by argument-dependent
///     lookup.
/// `intrusive_release` destroys the object when the last owner lets go. `RefCount` below is the
/// counter most types want to embed. A new object counts one owner already, so `make_intrusive` and
/// `adopt` touch no counter.
///
/// There are no weak pointers. One IntrusivePtr may not be written by two threads at once; two
/// pointers to one object may live on two threads.
#pragma once

#include <atomic>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace grapnel {

/// A count of owners that starts at one.
class RefCount {
 public:
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }

  /// True when the caller was the last owner and has to destroy the object.
  [[nodiscard]] bool release() const noexcept {
    // A sole owner needs no atomic subtraction: nobody else is left who could copy the pointer.
    return is_unique() || count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// True when the caller, an owner, is the only one. Acquire: what former owners wrote is visible
  /// then.
  bool is_unique() const noexcept { return count_.load(std::memory_order_acquire) == 1; }
  uint32_t use_count() const noexcept { return count_.load(std::memory_order_relaxed); }

  RefCount() = default;
  // Copying an object does not copy its owners.
  RefCount(const RefCount&) noexcept {}
  RefCount& operator=(const RefCount&) noexcept { return *this; }

 private:
  mutable std::atomic<uint32_t> count_{1};
};

/// Owns an object together with others: `std::shared_ptr` in one word.
template <class T>
class IntrusivePtr {
 public:
  using element_type = T;

  constexpr IntrusivePtr() noexcept = default;
  constexpr IntrusivePtr(std::nullptr_t) noexcept {}
  /// Becomes one more owner of `object`.
  explicit IntrusivePtr(T* object) noexcept : object_(object) { retain(); }
  /// Takes over an ownership that is already counted: a new object, or the result of `release`.
  [[nodiscard]] static IntrusivePtr adopt(T* object) noexcept {
    IntrusivePtr owner;
    owner.object_ = object;
    return owner;
  }

  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) { retain(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
    requires(!std::same_as<U, T> && std::convertible_to<U*, T*>)
  IntrusivePtr(const IntrusivePtr<U>& other) noexcept : object_(other.get()) {
    retain();
  }
  template <class U>
    requires(!std::same_as<U, T> && std::convertible_to<U*, T*>)
  IntrusivePtr(IntrusivePtr<U>&& other) noexcept : object_(other.release()) {}

  // The old object is let go last: its destructor may come back to this very pointer.
  IntrusivePtr& operator=(const IntrusivePtr& other) noexcept {
    IntrusivePtr(other).swap(*this);
    return *this;
  }
  IntrusivePtr& operator=(IntrusivePtr&& other) noexcept {
    IntrusivePtr(std::move(other)).swap(*this);
    return *this;
  }
  ~IntrusivePtr() { drop(object_); }

  void reset() noexcept { drop(std::exchange(object_, nullptr)); }
  void reset(T* object) noexcept { IntrusivePtr(object).swap(*this); }
  void swap(IntrusivePtr& other) noexcept { std::swap(object_, other.object_); }
  friend void swap(IntrusivePtr& a, IntrusivePtr& b) noexcept { a.swap(b); }

  /// Gives up the pointer without letting go: the caller owns one count and hands it to `adopt`
  /// later.
  [[nodiscard]] T* release() noexcept { return std::exchange(object_, nullptr); }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  void retain() const noexcept {
    if (object_ == nullptr) return;
    if constexpr (requires(const T& t) { t.intrusive_retain(); }) {
      object_->intrusive_retain();
    } else {
      intrusive_retain(static_cast<const T*>(object_));
    }
  }
  static void drop(T* object) noexcept {
    if (object == nullptr) return;
    if constexpr (requires(const T& t) { t.intrusive_release(); }) {
      object->intrusive_release();
    } else {
      intrusive_release(static_cast<const T*>(object));
    }
  }

  T* object_ = nullptr;
};

/// A new T with one owner.
template <class T, class... Args>
[[nodiscard]] IntrusivePtr<T> make_intrusive(Args&&... args) {
  return IntrusivePtr<T>::adopt(new T(std::forward<Args>(args)...));
}

template <class T, class U>
bool operator==(const IntrusivePtr<T>& a, const IntrusivePtr<U>& b) noexcept {
  return a.get() == b.get();
}
template <class T, class U>
bool operator==(const IntrusivePtr<T>& a, U* b) noexcept {
  return a.get() == b;
}
template <class T>
bool operator==(const IntrusivePtr<T>& a, std::nullptr_t) noexcept {
  return a.get() == nullptr;
}
template <class T>
std::strong_ordering operator<=>(const IntrusivePtr<T>& a, const IntrusivePtr<T>& b) noexcept {
  return std::compare_three_way{}(a.get(), b.get());
}

}  // namespace grapnel

/// @cond
template <class T>
struct std::hash<grapnel::IntrusivePtr<T>> {
  size_t operator()(const grapnel::IntrusivePtr<T>& p) const noexcept {
    return std::hash<T*>{}(p.get());
  }
};
/// @endcond
