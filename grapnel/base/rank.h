/// Which of several ranks this thread works for, as messages show it. dist/ says it; anybody may
/// ask.
#pragma once

#include <string>

namespace grapnel::base {

struct Rank {
  int number = 0, count = 1;
  friend bool operator==(const Rank&, const Rank&) = default;
  /// "rank 3 of 8", or "" where there is only one.
  std::string str() const;
};

/// The rank of this thread if it has one of its own, else that of the process.
Rank this_rank();

void set_process_rank(Rank rank);
/// For threads that are ranks.
void set_thread_rank(Rank rank);

}  // namespace grapnel::base
