#include "grapnel/base/pool.h"

#include <doctest/doctest.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "grapnel/base/sanitizer.h"

using namespace grapnel::base;

namespace {

struct Held {
  void* memory;
  size_t bytes;
  unsigned char mark;

  static Held take(size_t bytes, unsigned char mark) {
    void* const memory = pool_allocate(bytes);
    std::memset(memory, mark, bytes);
    return {memory, bytes, mark};
  }
  bool intact() const {
    const auto* p = static_cast<const unsigned char*>(memory);
    for (size_t i = 0; i < bytes; ++i) {
      if (p[i] != mark) return false;
    }
    return true;
  }
  void give_back() const { pool_deallocate(memory, bytes); }
};

// Uses the pool from its destructor, which on its thread runs after that of the pool's own lists
// when `use` came before the thread's first call of the pool.
struct LateUser {
  std::vector<Held>* kept = nullptr;
  void use(std::vector<Held>* blocks) { kept = blocks; }
  ~LateUser() {
    if (kept == nullptr) return;
    for (const Held& held : *kept) held.give_back();
    const Held last = Held::take(48, 1);
    last.give_back();
  }
};
thread_local LateUser late_user;

// Outlives main: its blocks return to the pool during static destruction.
struct StaticUser {
  std::vector<Held> kept;
  ~StaticUser() {
    for (const Held& held : kept) held.give_back();
    pool_deallocate(pool_allocate(32), 32);
  }
} static_user;

}  // namespace

TEST_CASE("pool blocks are aligned to 16 bytes and never overlap") {
  std::vector<Held> blocks;
  for (size_t bytes = 0; bytes <= 1100; ++bytes) {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(
          Held::take(bytes, static_cast<unsigned char>(bytes * 3 + static_cast<size_t>(i))));
      REQUIRE(reinterpret_cast<uintptr_t>(blocks.back().memory) % 16 == 0);
    }
  }
  for (const Held& block : blocks) REQUIRE(block.intact());
  for (const Held& block : blocks) block.give_back();
}

TEST_CASE("a block that was returned is the next one handed out") {
  if constexpr (!address_sanitizer) {
    void* const first = pool_allocate(100);
    pool_deallocate(first, 100);
    void* const second = pool_allocate(97);  // the same class
    CHECK(second == first);
    pool_deallocate(second, 97);
  }
}

TEST_CASE("returning no block at all is allowed") {
  pool_deallocate(nullptr, 64);
  pool_deallocate(nullptr, 5000);
}

TEST_CASE("blocks allocated by one thread and freed by another are used again") {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Held> queue;
  bool done = false;
  std::thread consumer([&] {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done || !queue.empty(); });
      if (queue.empty()) return;
      const Held held = queue.front();
      queue.pop_front();
      lock.unlock();
      REQUIRE(held.intact());
      held.give_back();
    }
  });
  std::set<void*> distinct;
  constexpr int rounds = 20000;
  for (int i = 0; i < rounds; ++i) {
    const Held held = Held::take(240, static_cast<unsigned char>(i));
    std::unique_lock lock(mutex);
    distinct.insert(held.memory);
    queue.push_back(held);
    // A bounded queue, so that memory has to come back from the consumer.
    const bool full = queue.size() >= 64;
    lock.unlock();
    changed.notify_one();
    while (full) {
      const std::lock_guard relock(mutex);
      if (queue.size() < 32) break;
    }
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_one();
  consumer.join();
  if constexpr (!address_sanitizer) CHECK(distinct.size() < 1000);
}

TEST_CASE("what a thread kept is there for the others after its end") {
  if constexpr (!address_sanitizer) {
    std::set<void*> theirs;
    std::thread([&] {
      std::vector<void*> blocks;
      for (int i = 0; i < 100; ++i) blocks.push_back(pool_allocate(1008));
      theirs.insert(blocks.begin(), blocks.end());
      for (void* block : blocks) pool_deallocate(block, 1008);
    }).join();
    std::vector<void*> mine;
    size_t reused = 0;
    for (int i = 0; i < 100; ++i) {
      mine.push_back(pool_allocate(1008));
      reused += theirs.count(mine.back());
    }
    CHECK(reused >= 80);
    for (void* block : mine) pool_deallocate(block, 1008);
  }
}

TEST_CASE("the pool serves destructors of thread-locals that run after its own") {
  for (int round = 0; round < 4; ++round) {
    std::vector<Held> blocks;
    std::thread([&] {
      late_user.use(&blocks);
      for (int i = 0; i < 200; ++i) blocks.push_back(Held::take(48, 7));
    }).join();
  }
}

TEST_CASE("the pool serves static destruction") {
  for (int i = 0; i < 200; ++i) static_user.kept.push_back(Held::take(32, 9));
}

TEST_CASE("many threads exchange blocks of many sizes and none is handed out twice") {
  constexpr size_t slots = 256;
  struct Slot {
    std::mutex mutex;
    Held held{nullptr, 0, 0};
  };
  std::array<Slot, slots> table;
  std::vector<std::thread> threads;
  std::array<int, 4> damaged{};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      unsigned state = t * 77 + 1;
      for (int i = 0; i < 20000; ++i) {
        state = state * 1664525u + 1013904223u;
        Held held = Held::take(1 + (state >> 8) % 512, static_cast<unsigned char>(state >> 20));
        Slot& slot = table[(state >> 16) % slots];
        {
          const std::lock_guard lock(slot.mutex);
          std::swap(slot.held, held);
        }
        if (held.memory == nullptr) continue;
        damaged[t] += !held.intact();
        held.give_back();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int count : damaged) CHECK(count == 0);
  for (Slot& slot : table) {
    if (slot.held.memory != nullptr) slot.held.give_back();
  }
}

TEST_CASE("a pooled class and its derived classes go back to the list of their own size") {
  struct Small : Pooled {
    virtual ~Small() = default;
    int64_t value = 1;
  };
  struct Large : Small {
    int64_t more[20] = {};
  };
  void* address = nullptr;
  {
    std::unique_ptr<Small> object = std::make_unique<Large>();
    address = object.get();
  }
  const std::unique_ptr<Small> small = std::make_unique<Small>();
  CHECK(small->value == 1);
  if constexpr (!address_sanitizer) {
    const auto large = std::make_unique<Large>();
    CHECK(static_cast<void*>(large.get()) == address);
  }
}
