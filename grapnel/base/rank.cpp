#include "grapnel/base/rank.h"

#include <atomic>

#include "grapnel/base/error.h"

namespace grapnel::base {

namespace {
constinit std::atomic<Rank> of_process{Rank{}};
constinit thread_local Rank of_thread{};
}  // namespace

std::string Rank::str() const {
  return count > 1 ? grapnel::str("rank ", number, " of ", count) : std::string();
}

Rank this_rank() {
  return of_thread.count > 1 ? of_thread : of_process.load(std::memory_order_relaxed);
}
void set_process_rank(Rank rank) { of_process.store(rank, std::memory_order_relaxed); }
void set_thread_rank(Rank rank) { of_thread = rank; }

}  // namespace grapnel::base
