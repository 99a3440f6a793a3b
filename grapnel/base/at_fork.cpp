#include "grapnel/base/at_fork.h"

#include <pthread.h>

#include <thread>

namespace grapnel::base {
namespace {

constexpr int orders = static_cast<int>(ForkOrder::memory) + 1;

/// By order. Handlers are only ever added.
constinit std::atomic<AtFork*> registered[orders];
/// What this thread's fork has called `before` of: what is registered meanwhile waits for the next.
constinit thread_local AtFork* called[orders];

void before_fork() {
  for (int i = 0; i < orders; ++i) {
    called[i] = registered[i].load(std::memory_order_acquire);
    for (AtFork* a = called[i]; a != nullptr; a = a->next)
      if (a->before) a->before(*a);
  }
}
template <void (*AtFork::* after)(AtFork&)>
void after_fork() {
  for (int i = orders; i-- > 0;)
    for (AtFork* a = called[i]; a != nullptr; a = a->next)
      if (a->*after) (a->*after)(*a);
}

}  // namespace

void register_at_fork(AtFork& handlers) noexcept {
  static const int installed =
      pthread_atfork(&before_fork, &after_fork<&AtFork::in_parent>, &after_fork<&AtFork::in_child>);
  (void)installed;
  std::atomic<AtFork*>& first = registered[static_cast<int>(handlers.order)];
  handlers.next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(handlers.next, &handlers, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
}

void ProcessMutex::enter_registry() noexcept {
  Registry before = Registry::none;
  if (registry_.compare_exchange_strong(before, Registry::entering)) {
    register_at_fork(at_fork_);
    registry_.store(Registry::entered, std::memory_order_release);
  }
  while (registry_.load(std::memory_order_acquire) != Registry::entered) std::this_thread::yield();
}

}  // namespace grapnel::base
