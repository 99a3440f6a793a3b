/// Signal handlers of the user's may run on a thread that computes.
#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {
const char *stack_begin, *stack_end;
std::atomic<int> calls, strays;

void look_at_stack(int) {
  const char* const frame = static_cast<const char*>(__builtin_frame_address(0));
  ++calls;
  if (frame < stack_begin || frame >= stack_end) ++strays;
}

/// Sends SIGALRM to this process all the time.
class Alarms {
 public:
  Alarms() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* begin = nullptr;
    size_t size = 0;
    pthread_attr_getstack(&attributes, &begin, &size);
    pthread_attr_destroy(&attributes);
    stack_begin = static_cast<const char*>(begin);
    stack_end = stack_begin + size;
    calls = 0;
    strays = 0;
    struct sigaction action = {};
    action.sa_handler = look_at_stack;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    const itimerval often{{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Alarms() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  struct sigaction before_;
};
}  // namespace

TEST_CASE(
    "signal handlers run on the user's threads and their stacks, never in the middle of a product "
    "or "
    "convolution") {
  const int threads = get_num_threads();
  set_num_threads(1);
  const Tensor a = rand({256, 256}), x = rand({8, 8, 24, 24}),
               w = rand({16, 8, 3, 3}).requires_grad_();
  // Threads of the library take no signals; one of them makes kernels.
  auto fused = compile([&] { return a * 2 + a; });
  fused();
  {
    const Alarms alarms;
    for (int i = 0; i < 100000 && calls < 300; ++i) {
      a.matmul(a);
      if (i % 4 == 0) conv2d(x, w).sum().backward();
    }
  }
  set_num_threads(threads);
  CHECK(calls.load() >= 300);
  CHECK(strays.load() == 0);
}
