#include "tests/mock_device/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "grapnel/base/error.h"

namespace grapnel::mock {

namespace {

constexpr size_t kBytes = size_t{8} << 30;  // of which nothing is there before it is touched
constexpr size_t kRests = 64;               // blocks of one size that wait to be used again

size_t rounded(size_t bytes) { return std::bit_ceil(bytes < 64 ? size_t{64} : bytes); }

char* map(int file, int access) {
  void* const at = mmap(nullptr, kBytes, access, MAP_SHARED | MAP_NORESERVE, file, 0);
  check(at != MAP_FAILED, "mock device: memory cannot be mapped.");
  return static_cast<char*>(at);
}

}  // namespace

Arena::Arena() {
  const int file = memfd_create("mock_device", MFD_CLOEXEC);
  check(file >= 0 && ftruncate(file, kBytes) == 0, "mock device: there is no memory file.");
  begin_ = map(file, PROT_NONE);
  distance_ = map(file, PROT_READ | PROT_WRITE) - begin_;
  close(file);
}

void* Arena::take(size_t bytes, QueueId queue) {
  const size_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  std::deque<void*>& freed = freed_[{size, queue}];
  void* address = nullptr;
  if (freed.size() > kRests || (!freed.empty() && used_ + size > kBytes)) {
    address = freed.front();
    freed.pop_front();
    stats_.cached -= size;
  } else {
    check(used_ + size <= kBytes, "mock device: out of memory: ", bytes, " bytes were asked for.");
    address = begin_ + used_;
    used_ += size;
    ++stats_.system_allocations;
  }
  ++stats_.allocations;
  stats_.in_use += size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return address;
}

void Arena::give_back(void* address, size_t bytes, QueueId queue) {
  const size_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  freed_[{size, queue}].push_back(address);
  stats_.in_use -= size;
  stats_.cached += size;
}

MemoryStats Arena::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Arena::trim() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, addresses] : freed_)
    for (void* const address : addresses)
      if (kind.first % page == 0 && (static_cast<char*>(address) - begin_) % page == 0)
        madvise(behind(address), kind.first, MADV_REMOVE);
  freed_.clear();
  stats_.cached = 0;
}

}  // namespace grapnel::mock
