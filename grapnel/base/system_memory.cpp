#include "grapnel/base/system_memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "grapnel/base/sanitizer.h"

namespace grapnel::base {
namespace {

constexpr size_t huge_page = size_t{2} << 20;

// The address sanitizer guards both ends of what comes from malloc, and knows nothing of mappings.
constexpr bool is_mapped(size_t bytes) { return !address_sanitizer && bytes >= huge_page; }

void* map(size_t bytes) noexcept {
  // A huge page has to start at a multiple of its size, so map one more and return what sticks out.
  void* const mapping = ::mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapping);
  const size_t before = (huge_page - reinterpret_cast<uintptr_t>(start) % huge_page) % huge_page;
  if (before > 0) ::munmap(start, before);
  ::munmap(start + before + bytes, huge_page - before);
  ::madvise(start + before, bytes,
            MADV_HUGEPAGE);  // only a hint: a system without huge pages ignores it
  return start + before;
}

}  // namespace

void* system_allocate(size_t bytes) noexcept {
  if (is_mapped(bytes)) return map(bytes);
  void* memory = nullptr;
  return ::posix_memalign(&memory, 64, bytes) == 0 ? memory : nullptr;
}

void system_deallocate(void* memory, size_t bytes) noexcept {
  if (is_mapped(bytes)) {
    ::munmap(memory, bytes);
  } else {
    std::free(memory);
  }
}

int64_t last_level_cache() noexcept {
  // Not sysconf: on a virtual machine it reports what no core has to itself.
  int64_t kilobytes = 0;
  if (std::FILE* const file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re")) {
    if (std::fscanf(file, "%" SCNd64 "K", &kilobytes) != 1) kilobytes = 0;
    std::fclose(file);
  }
  return (kilobytes > 0 ? kilobytes : 32768) << 10;
}

size_t machine_memory() noexcept {
  struct sysinfo info = {};
  if (::sysinfo(&info) != 0) return SIZE_MAX;
  return (size_t{info.totalram} + info.totalswap) * info.mem_unit;
}

}  // namespace grapnel::base
