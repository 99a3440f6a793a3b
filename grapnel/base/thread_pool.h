/// One pool of threads for everything. Work is cut into pieces whose number never depends on the
/// number of threads, and threads claim pieces one by one, so results are the same for every thread
/// count and a core that is taken away slows a call down but never stalls it.
#pragma once

#include <cstdint>
#include <type_traits>

namespace grapnel {

/// Number of threads that parallel_for may use, the caller's included. Starts as the size of the
/// affinity mask, or GRAPNEL_NUM_THREADS.
int get_num_threads();

/// May be called at any time, from any thread; calls that are already running keep their threads.
void set_num_threads(int count);

namespace base {

/// A borrowed callable: two words, no allocation. The callable must outlive the call.
class RangeFn {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFn>)
  RangeFn(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Calls fn(begin, end) on pieces of at most `grain` items that cover [0, count). With one piece,
/// inside another parallel_for, with one thread, in a forked child, or while another thread has the
/// pool, everything runs on the caller, cut into the same pieces. The first exception thrown
/// reaches the caller; pieces not begun are dropped. Pieces run with the caller's rounding mode and
/// denormal handling.
void parallel_for(int64_t count, int64_t grain, RangeFn fn);

}  // namespace base
}  // namespace grapnel
