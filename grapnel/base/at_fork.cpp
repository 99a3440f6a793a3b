#include "grapnel/base/at_fork.h"

#include <pthread.h>

namespace grapnel::base {
namespace {

constexpr int orders = static_cast<int>(ForkOrder::memory) + 1;

/// By order. Handlers are only ever added, with `registering` held.
constinit std::mutex registering;
constinit std::atomic<AtFork*> registered[orders];
/// What this thread's fork has called `before` of.
constinit thread_local AtFork* called[orders];

template <void (*AtFork::* handler)(AtFork&)>
void call_backwards() {
  for (int i = orders; i-- > 0;)
    for (AtFork* a = called[i]; a != nullptr; a = a->next)
      if (a->*handler) (a->*handler)(*a);
}

/// Returns with `registering` held, so a child finds nobody half registered. Registering is the
/// innermost lock: whoever is in another may want it. So it is taken last, and what was registered
/// until then makes the fork step back and begin again.
void before_fork() {
  for (bool all = false; !all;) {
    for (int i = 0; i < orders; ++i) {
      called[i] = registered[i].load(std::memory_order_acquire);
      for (AtFork* a = called[i]; a != nullptr; a = a->next)
        if (a->before) a->before(*a);
    }
    registering.lock();
    all = true;
    for (int i = 0; i < orders; ++i) all = all && called[i] == registered[i].load();
    if (all) break;
    registering.unlock();
    call_backwards<&AtFork::in_parent>();
  }
}
template <void (*AtFork::* handler)(AtFork&)>
void after_fork() {
  registering.unlock();
  call_backwards<handler>();
}

const int installed =
    pthread_atfork(&before_fork, &after_fork<&AtFork::in_parent>, &after_fork<&AtFork::in_child>);

void add(AtFork& handlers) noexcept {
  std::atomic<AtFork*>& first = registered[static_cast<int>(handlers.order)];
  handlers.next = first.load(std::memory_order_relaxed);
  first.store(&handlers, std::memory_order_release);
}

}  // namespace

void register_at_fork(AtFork& handlers) noexcept {
  const std::lock_guard lock(registering);
  add(handlers);
}

void ProcessMutex::enter_registry() noexcept {
  const std::lock_guard lock(registering);
  if (entered_.load(std::memory_order_relaxed)) return;
  add(at_fork_);
  entered_.store(true, std::memory_order_release);
}

}  // namespace grapnel::base
