/// CUDA devices that are none, for tests: what works on them works on devices.
///
/// - Their addresses belong to no memory that the host may touch: whoever does dies by SIGSEGV at
///   the place. The memory lies elsewhere, at a distance that only this folder knows.
/// - They are asynchronous. A device has two queues of work with a thread each; now and then it dawdles, so a
///   missing wait gives wrong values sooner or later. An error waits, too: for the next who waits.
/// - Fresh and freed memory is filled with bytes that are no number.
/// - The CPU's evaluator does the work, so results have the CPU's bits.
#pragma once

#include <cstdint>
#include <optional>

#include "grapnel/tensor/device_memory.h"

namespace grapnel::mock {

/// Makes cuda:0 and cuda:1. Once per process; later calls do nothing.
void install();

/// How much was put into the queues, how often somebody waited, and how often queues were put in order,
/// so far.
struct Counts {
  uint64_t calls = 0, copies = 0, waits = 0, orders = 0;
};
Counts counts();
/// Bytes on the devices that are in use.
uint64_t bytes_in_use();

/// Queues of each device.
inline constexpr QueueId kQueues = 2;

/// While it lives, the devices do nothing of what is put into their queues, or into that one.
class Hold {
 public:
  explicit Hold(std::optional<QueueId> queue = std::nullopt);
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  const std::optional<QueueId> queue_;
};

/// While it lives, this thread puts its work into that queue of each device.
class OnQueue {
 public:
  explicit OnQueue(QueueId queue);
  ~OnQueue();
  OnQueue(const OnQueue&) = delete;
  OnQueue& operator=(const OnQueue&) = delete;

 private:
  const QueueId before_;
};

}  // namespace grapnel::mock
