#include "grapnel/base/rank.h"

#include <atomic>

#include "grapnel/base/context.h"
#include "grapnel/base/error.h"

namespace grapnel::base {

namespace {
constinit std::atomic<Rank> of_process{Rank{}};
}  // namespace

std::string Rank::str() const {
  return count > 1 ? grapnel::str("rank ", number, " of ", count) : std::string();
}

Rank this_rank() {
  return this_context.modes.rank.count > 1 ? this_context.modes.rank
                                           : of_process.load(std::memory_order_relaxed);
}
void set_process_rank(Rank rank) { of_process.store(rank, std::memory_order_relaxed); }
void set_thread_rank(Rank rank) { this_context.modes.rank = rank; }

}  // namespace grapnel::base
