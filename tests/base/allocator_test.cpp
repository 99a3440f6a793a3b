#include "grapnel/base/allocator.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grapnel/base/block_cache.h"
#include "grapnel/base/error.h"
#include "grapnel/base/sanitizer.h"
#include "grapnel/base/size_class.h"

using namespace grapnel;
using namespace grapnel::base;

namespace {

constexpr size_t KiB = 1024;
constexpr size_t MiB = 1024 * KiB;

struct Block {
  size_t bytes = 0;
  void* memory = nullptr;
  explicit Block(size_t n) : bytes(n), memory(allocate(n)) {}
  Block(Block&& other) noexcept
      : bytes(other.bytes), memory(std::exchange(other.memory, nullptr)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(bytes, other.bytes);
    std::swap(memory, other.memory);
    return *this;
  }
  ~Block() { deallocate(memory, bytes); }
};

// Frees after its thread's cache has gone.
struct LateFree {
  Block* block = nullptr;
  ~LateFree() { delete block; }
};
thread_local LateFree late_free;

struct StaticFree {
  Block* block = nullptr;
  ~StaticFree() { delete block; }
} static_free;

}  // namespace

TEST_CASE(
    "size classes hold what they are asked for and waste at most a quarter, from 256 bytes on") {
  for (size_t bytes = 0; bytes < 300000; ++bytes) {
    const uint32_t c = size_class_of(bytes);
    REQUIRE(size_class_bytes(c) >= bytes);
    REQUIRE(size_class_bytes(c) % 64 == 0);
    if (c > 0) REQUIRE(size_class_bytes(c - 1) < bytes);
    if (bytes >= 256) REQUIRE(size_class_bytes(c) <= bytes + bytes / 4);
  }
  for (size_t shift = 20; shift <= 47; ++shift) {
    const size_t bytes = size_t{1} << shift;
    CHECK(size_class_bytes(size_class_of(bytes)) == bytes);
    CHECK(size_class_bytes(size_class_of(bytes + 1)) == bytes / 4 * 5);
  }
}

TEST_CASE("a full block cache gives up its oldest blocks first") {
  alignas(64) static std::byte memory[4][64];
  BlockCache cache;
  for (auto& block : memory) cache.put(block, 0);
  CHECK(cache.bytes() == 256);
  const CachedBlock* evicted = cache.evict(128);
  CHECK(cache.bytes() == 128);
  CHECK(static_cast<const void*>(evicted) == memory[1]);
  CHECK(static_cast<const void*>(evicted->older) == memory[0]);
  CHECK(evicted->older->older == nullptr);
  CHECK(cache.take(0) == memory[3]);
  CHECK(cache.take(1) == nullptr);
  CHECK(cache.take(0) == memory[2]);
  CHECK(cache.take(0) == nullptr);
  CHECK(cache.bytes() == 0);
}

TEST_CASE("blocks of every size are aligned to 64 bytes and can be filled to the end") {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{1000}, 64 * KiB,
                       64 * KiB + 1, 300 * KiB, 2 * MiB - 1, 2 * MiB, 5 * MiB + 3}) {
    CAPTURE(bytes);
    const Block a(bytes), b(bytes);
    CHECK(a.memory != nullptr);
    CHECK(a.memory != b.memory);
    CHECK(reinterpret_cast<uintptr_t>(a.memory) % 64 == 0);
    std::memset(a.memory, 1, bytes);
    std::memset(b.memory, 2, bytes);
    if (bytes > 0) CHECK(static_cast<unsigned char*>(a.memory)[bytes - 1] == 1);
  }
}

TEST_CASE("a freed block serves the next request of its size without the system") {
  if constexpr (!address_sanitizer) {
    for (size_t bytes : {size_t{100}, 64 * KiB, 200 * KiB, 4 * MiB}) {
      CAPTURE(bytes);
      void* const first = allocate(bytes);
      deallocate(first, bytes);
      const MemoryStats before = memory_stats();
      CHECK(before.cached >= bytes);
      void* const second = allocate(bytes - 10);
      const MemoryStats after = memory_stats();
      CHECK(second == first);
      CHECK(after.system_allocations == before.system_allocations);
      CHECK(after.allocations == before.allocations + 1);
      CHECK(after.cached < before.cached);
      deallocate(second, bytes - 10);
    }
  }
}

TEST_CASE("the statistics count bytes in use and their peak") {
  reset_peak_memory();
  const MemoryStats start = memory_stats();
  CHECK(start.peak == start.in_use);
  {
    const Block a(1000);
    const Block b(3 * MiB);
    CHECK(memory_stats().in_use == start.in_use + 1000 + 3 * MiB);
    {
      const Block c(500);
    }
    CHECK(memory_stats().peak == start.in_use + 1500 + 3 * MiB);
  }
  CHECK(memory_stats().in_use == start.in_use);
  CHECK(memory_stats().peak == start.in_use + 1500 + 3 * MiB);
  reset_peak_memory();
  CHECK(memory_stats().peak == start.in_use);
}

TEST_CASE("released memory is no longer cached") {
  {
    const Block a(100), b(100 * KiB), c(3 * MiB);
  }
  if constexpr (!address_sanitizer) CHECK(memory_stats().cached > 0);
  release_cached_memory();
  CHECK(memory_stats().cached == 0);
}

TEST_CASE("the shared cache stays within its limit and can be trimmed") {
  release_cached_memory();
  set_memory_cache_limit(3 * MiB);
  {
    std::vector<Block> blocks;
    for (int i = 0; i < 8; ++i) blocks.emplace_back(1 * MiB);
  }
  CHECK(memory_stats().cached <= 3 * MiB);
  if constexpr (!address_sanitizer) CHECK(memory_stats().cached == 3 * MiB);
  trim(MiB);
  CHECK(memory_stats().cached <= MiB);
  {
    const Block large(5 * MiB);
  }
  CHECK(memory_stats().cached <= 3 * MiB);
  set_memory_cache_limit(1024 * MiB);
}

TEST_CASE("an impossible size is an error that names it and what is in use, and changes nothing") {
  const Block held(12345);
  const MemoryStats before = memory_stats();
  const std::string in_use = std::to_string(before.in_use) + " bytes";
  auto message_of = [](size_t bytes) -> std::string {
    try {
      deallocate(allocate(bytes), bytes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string negative = message_of(static_cast<size_t>(-8));
  CHECK(negative.find("18446744073709551608 bytes") != std::string::npos);
  CHECK(negative.find(in_use) != std::string::npos);
  CHECK(negative.find("negative or overflowed dimension") != std::string::npos);
  const std::string large = message_of(size_t{1} << 46);
  CHECK(large.find("70368744177664 bytes (67108864 MiB) asked for") != std::string::npos);
  CHECK(large.find(in_use) != std::string::npos);
  CHECK(large.find("this machine has") != std::string::npos);
  const MemoryStats after = memory_stats();
  CHECK(after.in_use == before.in_use);
  CHECK(after.allocations == before.allocations);
  const Block usable(1000);
}

TEST_CASE("freeing no memory at all is allowed") { deallocate(nullptr, 100); }

TEST_CASE("blocks freed by other threads are counted and reused") {
  const MemoryStats before = memory_stats();
  constexpr size_t slots = 64;
  struct Slot {
    std::mutex mutex;
    Block block{0};
    unsigned char mark = 0;
  };
  {
    std::array<Slot, slots> table;
    std::array<int, 4> damaged{};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        unsigned state = t + 1;
        for (int i = 0; i < 3000; ++i) {
          state = state * 1664525u + 1013904223u;
          const size_t bytes = (state >> 8) % ((state >> 5) % 8 == 0 ? 300 * KiB : 2 * KiB);
          const auto mark = static_cast<unsigned char>(state >> 24);
          Block block(bytes);
          std::memset(block.memory, mark, bytes);
          Slot& slot = table[(state >> 12) % slots];
          const std::lock_guard lock(slot.mutex);
          std::swap(slot.block, block);
          const unsigned char old = std::exchange(slot.mark, mark);
          const auto* p = static_cast<const unsigned char*>(block.memory);
          if (block.bytes > 0) damaged[t] += p[0] != old || p[block.bytes - 1] != old;
          if (i % 500 == 0) release_cached_memory();
          if (i % 700 == 0) CHECK(memory_stats().allocations > 0);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (int count : damaged) CHECK(count == 0);
    const MemoryStats after = memory_stats();
    CHECK(after.allocations - before.allocations >= 12000);
    if constexpr (!address_sanitizer)
      CHECK(after.system_allocations - before.system_allocations < 12000);
  }
  CHECK(memory_stats().in_use == before.in_use);
}

TEST_CASE("memory is freed in order while a thread ends") {
  const size_t in_use = memory_stats().in_use;
  std::thread([] {
    late_free.block = nullptr;  // registers its destructor before the cache registers its own
    late_free.block = new Block(256);
    {
      const Block kept_by_the_thread(256);
    }
  }).join();
  CHECK(memory_stats().in_use == in_use);
}

TEST_CASE("memory is freed in order during static destruction") {
  static_free.block = new Block(4096);
}
