/// Interrupts: a function of the program that long work asks now and then whether it is to go on.
#pragma once

#include <atomic>

namespace grapnel {

/// Has `check` called between the nodes of backward passes and between the items of compiled runs, on
/// the thread that runs them, at most every 20 ms per thread. What it throws ends the pass or the run
/// like an exception of a hook. Null: nobody is asked, which is how things begin and costs one load.
///
///   volatile std::sig_atomic_t interrupted = 0;                       // set by a signal handler
///   set_interrupt_check([] { if (interrupted) throw std::runtime_error("interrupted"); });
void set_interrupt_check(void (*check)());

namespace base {

extern constinit std::atomic<void (*)()> interrupt_check;
/// Calls the check, unless it was called a moment ago.
void ask_for_interrupts();

/// For whoever does long work in pieces: call it between them, where nothing is half done.
inline void between_pieces() {
  if (interrupt_check.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    ask_for_interrupts();
}

}  // namespace base
}  // namespace grapnel
