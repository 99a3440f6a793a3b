#include "grapnel/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <system_error>
#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "grapnel/base/at_fork.h"
#include "grapnel/base/context.h"
#include "grapnel/base/error.h"
#include "grapnel/base/on_this_thread.h"
#include "grapnel/base/place.h"
#include "grapnel/base/threads.h"

namespace grapnel {
namespace base {
namespace {

constexpr int max_threads = 1024;

#if defined(__x86_64__)
void relax() { _mm_pause(); }
uint32_t float_mode() { return _mm_getcsr() & ~uint32_t{_MM_EXCEPT_MASK}; }
void set_float_mode(uint32_t mode) {
  if (mode != float_mode()) _mm_setcsr(mode);
}
#else
void relax() { std::this_thread::yield(); }
uint32_t float_mode() { return 0; }
void set_float_mode(uint32_t) {}
#endif

// About 50 us. It bridges the gap between two ops of a chain (a spinning worker starts after 0.2
// us, a sleeping one after 10 to 30), yet an idle pool is asleep before anybody notices.
constexpr int spins_before_sleep = 2000;

/// True while this thread runs a piece: a nested parallel_for stays on it.
thread_local bool inside_piece = false;

struct InsidePiece {
  InsidePiece() { inside_piece = true; }
  ~InsidePiece() { inside_piece = false; }
};

/// One call of parallel_for; lives on the caller's stack.
struct Job {
  RangeFn fn;
  int64_t count;
  int64_t grain;
  int64_t pieces;
  uint32_t mode = float_mode();
  Modes modes = this_context.modes;  ///< what pieces do is meant as on the caller's thread
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error = nullptr;  // written by the one thread that set `failed`

  bool exhausted() const { return next.load(std::memory_order_relaxed) >= pieces; }

  void run() noexcept {
    const InsidePiece guard;
    for (;;) {
      const int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) return;
      try {
        fn(piece * grain, std::min(count, (piece + 1) * grain));
      } catch (...) {
        next.store(pieces, std::memory_order_relaxed);
        if (!failed.exchange(true, std::memory_order_acq_rel)) error = std::current_exception();
      }
    }
  }
};

struct alignas(64) Worker {
  std::atomic<uint32_t> signal{0};  // bumped to call this worker
};

/// Note [Leaving a job]: workers touch a job, which lives on somebody's stack, only between raising
/// and lowering `active_`, and only if they found it in `open_` after raising. The caller first
/// takes the job out of `open_`, then waits for `active_` to fall to zero. Both sides write before
/// they read, in one total order, so either the worker sees that the job is gone or the caller sees
/// the worker.
class Pool {
 public:
  /// Never destroyed: workers may be asleep in it while the process exits.
  static Pool& instance() {
    static Pool& pool = *new Pool;
    return pool;
  }

  int limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(int count) { limit_.store(count, std::memory_order_relaxed); }

  /// False if the pool is not to be had; then nothing has run.
  bool run(Job& job) {
    const int helpers = static_cast<int>(std::min<int64_t>(job.pieces, limit()) - 1);
    if (helpers < 1 || forked_.load(std::memory_order_relaxed)) return false;
    if (busy_.exchange(true, std::memory_order_acquire)) return false;

    start_workers(helpers);
    open_.store(&job);
    for (int i = 0; i < std::min(helpers, started_) && !job.exhausted(); ++i) call(*workers_[i]);
    job.run();
    open_.store(nullptr);
    wait_until_left();
    busy_.store(false, std::memory_order_release);
    return true;
  }

 private:
  Pool() : limit_(initial_limit()) {
    // The child of a fork has none of the workers, and a lock may be held by a thread that does not
    // exist there.
    static constinit AtFork in_child{.order = ForkOrder::workers,
                                     .in_child = [](AtFork&) { forked_.store(true); }};
    register_at_fork(in_child);
  }

  static int initial_limit() {
    if (const char* text = std::getenv("GRAPNEL_NUM_THREADS")) {
      const std::string_view view = text;
      int count = 0;
      const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), count);
      check(error == std::errc{} && end == view.data() + view.size() && count >= 1 &&
                count <= max_threads,
            "GRAPNEL_NUM_THREADS is \"", view, "\".\nSet it to a whole number from 1 to ",
            max_threads, ", or unset it to use every core this process may run on.");
      return count;
    }
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
      return std::clamp(CPU_COUNT(&mask), 1, max_threads);
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, max_threads);
  }

  /// Only called by the owner of busy_.
  void start_workers(int wanted) {
    if (started_ >= wanted) return;
    try {
      while (started_ < wanted) {
        if (!workers_[started_]) workers_[started_] = new Worker;
        start_thread([this, worker = workers_[started_]] { serve(*worker); }).detach();
        ++started_;
      }
    } catch (const std::exception&) {
      // No more threads or memory to be had: those that exist do the work.
    }
  }

  static void call(Worker& worker) {
    worker.signal.fetch_add(1, std::memory_order_release);
    worker.signal.notify_one();
  }

  void serve(Worker& self) {
    // Begins at zero, so a call made before this thread ran is not missed.
    for (uint32_t seen = 0;;) {
      for (int i = 0; i < spins_before_sleep && self.signal.load(std::memory_order_relaxed) == seen;
           ++i)
        relax();
      self.signal.wait(seen, std::memory_order_acquire);
      seen = self.signal.load(std::memory_order_acquire);

      active_.fetch_add(1);  // see Note [Leaving a job]
      if (Job* job = open_.load()) {
        set_float_mode(job->mode);
        const ModesScope as_caller(job->modes);
        job->run();
      }
      if (active_.fetch_sub(1) == 1) active_.notify_one();
    }
  }

  void wait_until_left() {
    for (int i = 0; i < spins_before_sleep; ++i) {
      if (active_.load() == 0) return;
      relax();
    }
    for (int left; (left = active_.load()) != 0;) active_.wait(left);
  }

  static inline std::atomic<bool> forked_{false};
  std::atomic<int> limit_;
  alignas(64) std::atomic<bool> busy_{false};
  alignas(64) std::atomic<Job*> open_{nullptr};
  alignas(64) std::atomic<int> active_{0};
  int started_ = 0;
  Worker* workers_[max_threads] = {};
};

void run_inline(int64_t count, int64_t grain, const RangeFn& fn) {
  // Cut as it would be with many threads: a result may depend on where the pieces end.
  for (int64_t begin = 0; begin < count; begin += grain) fn(begin, std::min(count, begin + grain));
}

}  // namespace

OnThisThread::OnThisThread() : before_(inside_piece) { inside_piece = true; }
OnThisThread::~OnThisThread() { inside_piece = before_; }

void parallel_for(int64_t count, int64_t grain, RangeFn fn) {
  if (count <= 0) return;
  grain = std::clamp<int64_t>(grain, 1, count);
  if (grain == count) return fn(0, count);
  if (inside_piece || Pool::instance().limit() == 1) return run_inline(count, grain, fn);

  Job job{fn, count, grain, (count - 1) / grain + 1};
  if (!Pool::instance().run(job)) return run_inline(count, grain, fn);
  if (job.error) base::rethrow_here(job.error);
}

}  // namespace base

int get_num_threads() { return base::Pool::instance().limit(); }

void set_num_threads(int count) {
  check(count >= 1 && count <= base::max_threads, "set_num_threads: the number is ", count,
        ".\nGive the number of threads that may compute, the caller's included: from 1 to ",
        base::max_threads, ".");
  base::Pool::instance().set_limit(count);
}

}  // namespace grapnel
