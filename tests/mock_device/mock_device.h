/// CUDA devices that are none, for tests: what works on them works on devices.
///
/// - Their addresses belong to no memory that the host may touch: whoever does dies by SIGSEGV at
///   the place. The memory lies elsewhere, at a distance that only this folder knows.
/// - They are asynchronous. A device has a thread and a queue of work; now and then it dawdles, so a
///   missing wait gives wrong values sooner or later. An error waits, too: for the next who waits.
/// - Fresh and freed memory is filled with bytes that are no number.
/// - The CPU's evaluator does the work, so results have the CPU's bits.
#pragma once

#include <cstdint>

namespace grapnel::mock {

/// Makes cuda:0 and cuda:1. Once per process; later calls do nothing.
void install();

/// How much was put into the queues, and how often somebody waited, so far.
struct Counts {
  uint64_t calls = 0, copies = 0, waits = 0;
};
Counts counts();
/// Bytes on the devices that are in use.
uint64_t bytes_in_use();

/// While it lives, the devices do nothing of what is put into their queues.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

}  // namespace grapnel::mock
