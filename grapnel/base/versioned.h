/// A value that any thread may read, without waiting for other readers, while any other thread
/// changes it.
///
/// Note [Reading versions]
/// Reading should cost next to nothing, so a reader takes no lock: it counts itself in, and reads
/// the version that it finds. A writer first hides that version. If nobody is counted in then,
/// nobody can get at it, and it is changed where it is; else a changed copy takes its place, and
/// the old one is kept until the last reader leaves. A reader who finds the value hidden waits for
/// the writer, who never waits for readers. So readers may themselves write, and go on reading what
/// they had.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "grapnel/base/spin_lock.h"

namespace grapnel::base {

/// `T` is copied when it is changed under the eyes of a reader. What old versions own dies outside
/// of all locks.
template <class T>
class Versioned {
 public:
  Versioned() : value_(new T) {}
  ~Versioned() { delete value_.load(std::memory_order_acquire); }
  Versioned(const Versioned&) = delete;
  Versioned& operator=(const Versioned&) = delete;

  /// While it lives, every version that it showed stays as it is.
  class Reader {
   public:
    explicit Reader(const Versioned& of) : of_(of) { of_.readers_.fetch_add(1); }
    [[gnu::always_inline]] ~Reader() {
      if (of_.readers_.fetch_sub(1) == kRetired + 1) [[unlikely]]
        of_.free_retired();
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    /// The version of this moment.
    const T& value() const {
      const T* value = of_.value_.load();
      return value == &hidden() ? of_.wait() : *value;
    }
    /// The same, or an empty value if this one is just being changed.
    const T& value_or_empty() const { return *of_.value_.load(); }
    /// Whether there may have been a change since this reader came.
    bool changed() const { return of_.readers_.load() & kRetired; }

   private:
    const Versioned& of_;
  };

  /// Calls fn(T&) on a version that nobody else sees yet. Writers take turns.
  template <class Change>
  void change(Change&& fn) {
    {
      const std::lock_guard guard(lock_);
      // Shown again whatever happens: memory may run out below.
      struct Hidden {
        std::atomic<const T*>& place;
        T* value = const_cast<T*>(place.exchange(&hidden()));
        ~Hidden() { place.store(value); }
      } mine{value_};
      if ((readers_.load() & ~kRetired) != 0) {
        auto copy = std::make_unique<T>(*mine.value);
        retired_.emplace_back(mine.value);
        mine.value = copy.release();
        readers_.fetch_or(kRetired);
      }
      fn(*mine.value);
    }
    // The last reader may have left before it could see that there is something to free.
    if (readers_.load() == kRetired) [[unlikely]]
      free_retired();
  }

 private:
  static constexpr uint32_t kRetired = 1u << 31;
  static const T& hidden() {
    static const T& empty = *new T;
    return empty;
  }
  const T& wait() const {
    const std::lock_guard guard(lock_);
    return *value_.load(std::memory_order_relaxed);
  }
  [[gnu::noinline]] void free_retired() const {
    std::vector<std::unique_ptr<T>> dying;
    const std::lock_guard guard(lock_);
    if ((readers_.load() & ~kRetired) != 0) return;
    dying.swap(retired_);
    readers_.fetch_and(~kRetired);
  }

  mutable std::atomic<uint32_t> readers_{0};  ///< and kRetired while there are versions to free
  mutable SpinLock lock_;                     ///< held by writers
  std::atomic<const T*> value_;               ///< &hidden() while it is being changed
  mutable std::vector<std::unique_ptr<T>> retired_;
};

}  // namespace grapnel::base
