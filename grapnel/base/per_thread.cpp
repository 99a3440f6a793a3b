#include "grapnel/base/per_thread.h"

#include <pthread.h>

#include "grapnel/base/threads.h"

namespace grapnel::base {
namespace {

/// What the thread has to do at its end, the latest first.
constinit thread_local ThreadEnd* ends = nullptr;

void run_ends(void*) {
  while (ThreadEnd* const end = ends) {
    ends = end->next;
    end->run(*end);
  }
}

/// The destructors of keys run after those of thread_local objects. Without a key (a process has
/// some thousand) what threads own is lost when they end, and nothing worse.
struct Key {
  pthread_key_t key{};
  bool made;
  Key() : made(pthread_key_create(&key, &run_ends) == 0) { stay_loaded(); }
};
const Key& key() {
  static const Key of_the_process;
  return of_the_process;
}

}  // namespace

void at_thread_end(ThreadEnd& end) noexcept {
  const Key& k = key();
  end.next = ends;
  ends = &end;
  if (end.next == nullptr && k.made) pthread_setspecific(k.key, &ends);
}

}  // namespace grapnel::base
