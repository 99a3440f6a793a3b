/// Runs a function on another stack of the same thread, where the one at hand may not be deep
/// enough.
///
/// It is the same thread, so everything that belongs to the thread is at hand: thread-local state
/// of the library and of the program, locks, the rank, the name. Nothing has to be carried over.
#pragma once

#include <functional>

namespace grapnel::base {

/// Calls `fn` on a stack of 8 MiB, of which memory is used as it is touched, with an unreadable
/// page at its end. Exceptions reach the caller. Throws std::bad_alloc if there is no room.
void run_on_fresh_stack(const std::function<void()>& fn);

}  // namespace grapnel::base
