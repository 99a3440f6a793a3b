/// A thread's own state that may be used for as long as the thread runs, by anybody.
///
/// Note [What a thread owns]
/// The program's own thread-locals and global objects may hold tensors, and their destructors run
/// library code: after the destructors of every thread_local and static object that was constructed
/// later. So nothing of the library may be gone by then. A thread_local of the library is trivially
/// destructible; what it owns on the heap is freed by at_thread_end, after all destructors of
/// thread_local objects have run, and made anew if it is needed once more. Static objects have no
/// destructors either: `static X& x = *new X`. tests/layers/check_lifetimes.py looks for both in
/// the object files.
#pragma once

#include <utility>

namespace grapnel::base {

/// Something to do when a thread ends; lives until then.
struct ThreadEnd {
  void (*run)(ThreadEnd& self) noexcept;
  ThreadEnd* next = nullptr;
};

/// Runs `end` when the calling thread ends, after the destructors of its thread_local objects; the
/// last one first. On the main thread it never runs when the program ends by return or exit(),
/// since static destructors come after that. May be called while a thread ends.
void at_thread_end(ThreadEnd& end) noexcept;

/// A `T` for each thread, made when it is first asked for. Declare it as
///
///     constinit thread_local base::PerThread<T> state;
template <class T>
class PerThread {
 public:
  constexpr PerThread() = default;

  /// Null if this thread has none yet.
  T* get_if() const noexcept { return owned_ ? &owned_->value : nullptr; }
  template <class... Args>
  T& get(Args&&... args) {
    if (!owned_) [[unlikely]]
      make(std::forward<Args>(args)...);
    return owned_->value;
  }

 private:
  struct Owned : ThreadEnd {
    PerThread* place;
    T value;
    template <class... Args>
    explicit Owned(PerThread* p, Args&&... args)
        : ThreadEnd{&end}, place(p), value(std::forward<Args>(args)...) {}
  };
  template <class... Args>
  [[gnu::noinline]] void make(Args&&... args) {
    owned_ = new Owned(this, std::forward<Args>(args)...);
    at_thread_end(*owned_);
  }
  static void end(ThreadEnd& self) noexcept {
    auto* const owned = static_cast<Owned*>(&self);
    owned->place->owned_ = nullptr;
    delete owned;
  }

  Owned* owned_ = nullptr;
};

}  // namespace grapnel::base
