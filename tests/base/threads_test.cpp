/// What threads own, what they do with signals, and what a fork finds.
#include "grapnel/base/threads.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include "grapnel/base/allocator.h"
#include "grapnel/base/at_fork.h"
#include "grapnel/base/per_thread.h"
#include "grapnel/base/pool.h"

using namespace grapnel::base;

namespace {

std::atomic<int> alive{0};
struct Counted {
  int value = 7;
  Counted() { ++alive; }
  ~Counted() {
    value = 0;
    --alive;
  }
};
constinit thread_local PerThread<Counted> own;
static_assert(std::is_trivially_destructible_v<PerThread<Counted>>);

std::atomic<int> seen{0};
struct Late {
  bool on = false;
  ~Late() {
    if (on) seen = own.get().value;
  }
};
thread_local Late late;

/// The exit status of a child that calls `body`, which has 20 s.
int in_child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    body();
    _exit(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("what a thread owns outlives its thread_local objects, and goes with the thread") {
  CHECK(alive == 0);
  std::thread([] {
    late.on = true;  // constructed first, so destroyed last
    CHECK(own.get_if() == nullptr);
    CHECK(own.get().value == 7);
    CHECK(own.get_if() == &own.get());
    CHECK(alive == 1);
  }).join();
  CHECK(seen == 7);
  CHECK(alive == 0);
}

TEST_CASE("what a thread owns is made anew if it is needed after it has gone") {
  static pthread_key_t key;
  // This key is younger than the library's, so its destructor runs after what the thread owned has
  // gone.
  own.get();
  pthread_key_create(&key, [](void*) { seen = own.get().value + 1; });
  seen = 0;
  std::thread([] {
    own.get();
    pthread_setspecific(key, &key);
  }).join();
  CHECK(seen == 8);
  pthread_key_delete(key);
}

TEST_CASE("threads of the library hold signals back, threads for the user's functions do not") {
  const auto held = [] {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    return sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGSEGV) == 0;
  };
  std::atomic<bool> by_library{false}, by_user{true};
  start_thread([&] { by_library = held(); }).join();
  start_user_thread([&] { by_user = held(); }).join();
  CHECK(by_library);
  CHECK_FALSE(by_user);
  CHECK_FALSE(held());
}

TEST_CASE("a child by fork can allocate whatever other threads were doing") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // a sanitizer's own allocator is not looked after around forks
#endif
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int t = 0; t < 2; ++t)
    busy.emplace_back([&] {
      std::vector<void*> small, large;
      while (!stop) {
        for (size_t i = 0; i < 200; ++i) {
          small.push_back(pool_allocate(16 + 16 * (i % 60)));
          large.push_back(allocate(1000 + 3000 * i));
        }
        for (size_t i = 0; i < 200; ++i) {
          pool_deallocate(small[i], 16 + 16 * (i % 60));
          deallocate(large[i], 1000 + 3000 * i);
        }
        small.clear();
        large.clear();
      }
    });
  int failed = 0;
  for (int i = 0; i < 100 && failed == 0; ++i)
    failed += in_child([] {
                for (size_t k = 1; k < 200; ++k) {
                  pool_deallocate(pool_allocate(5 * k), 5 * k);
                  deallocate(allocate(3000 * k), 3000 * k);
                }
              }) != 0;
  stop = true;
  for (std::thread& t : busy) t.join();
  CHECK(failed == 0);
}

TEST_CASE("an object knows whether it is in the process that made it") {
  const HomeProcess home;
  CHECK_FALSE(home.is_elsewhere());
  CHECK(in_child([&] { _exit(home.is_elsewhere() ? 0 : 1); }) == 0);
}

TEST_CASE("a fork waits for whoever is inside a process-wide lock, and finds it free") {
  static constinit ProcessMutex mutex{ForkOrder::workers};
  static int first = 0, second = 0;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) {
      const std::lock_guard lock(mutex);
      ++first;
      std::this_thread::yield();
      ++second;
    }
  });
  int failed = 0;
  for (int i = 0; i < 50; ++i)
    failed += in_child([] {
                const std::lock_guard lock(mutex);
                _exit(first == second ? 0 : 1);
              }) != 0;
  stop = true;
  writer.join();
  CHECK(failed == 0);
}

TEST_CASE("a fork finds no lock half entered into the registry of locks") {
  std::atomic<ProcessMutex*> latest{new ProcessMutex(ForkOrder::workers)};
  { const std::lock_guard lock(*latest.load()); }  // which enters it: what is entered is no leak
  constexpr int locks = 24;  // the thread sanitizer ends programs that hold more than 64 at once
  std::atomic<int> forks{0};
  std::thread writer([&] {
    for (int i = 0; i < locks; ++i) {
      while (forks <= i) std::this_thread::yield();
      auto* mutex = new ProcessMutex(i % 2 ? ForkOrder::workers : ForkOrder::settings);
      latest = mutex;  // before its first use, which is what enters it
      const std::lock_guard lock(*mutex);
    }
  });
  int failed = 0;
  for (int i = 0; i < locks; ++i) {
    ++forks;
    failed += in_child([&] { const std::lock_guard lock(*latest.load()); }) != 0;
  }
  writer.join();
  CHECK(failed == 0);
}
