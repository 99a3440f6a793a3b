/// AllocationFault: lets an allocation of tensor memory fail, for tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grapnel::base {

/// While it lives, the allocations of this thread are counted, and number `fails` (from 0) ends as
/// if memory had run out. The thread does without its cache for that long, so that allocating costs
/// nobody else anything. One at a time per thread.
class AllocationFault {
 public:
  explicit AllocationFault(int64_t fails);
  ~AllocationFault();
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;

  int64_t seen() const { return seen_; }
  /// For the allocator.
  bool strikes() { return seen_++ == fails_; }

 private:
  const int64_t fails_;
  int64_t seen_ = 0;
  void* const cache_;
};

}  // namespace grapnel::base
