/// Evaluator: where a call of an op goes. A device computes it, a recorder writes it down.
///
/// `apply` asks `evaluator(device)` once and has no other branch. What an op is (ops/) knows nothing of how
/// a device computes it: cpu/ has a function for every op, in a table.
#pragma once

#include <functional>

#include "grapnel/base/context.h"
#include "grapnel/ops/op.h"

namespace grapnel {

class Evaluator {
 public:
  /// Memory for a result, on the device that its specification names. What it holds is not known before run().
  virtual Tensor empty(const TensorSpec& spec) = 0;
  /// Computes `out`, which is from empty(), or inputs[0] itself for a call in place. The results of a
  /// view op are views, which are there already: only a recorder cares.
  virtual void run(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> out) = 0;
  /// Writes `source`, broadcast and converted, over the elements of `target`. No history, no version.
  /// Between two devices this is the work of one that is not the CPU.
  virtual void copy(const Tensor& target, const Tensor& source) = 0;
  /// Copies the values of `t`, row by row, to memory of the host: the one that waits.
  virtual void read(const Tensor& t, void* host) = 0;

  /// Calls piece(begin, end) until all of [0, count) is done, on several threads.
  using ShareOut = void (*)(int64_t count, const std::function<void(int64_t, int64_t)>& piece);
  /// How work on parts of tensors is shared out among threads; null where ops on whole tensors are
  /// better.
  virtual ShareOut share_out() const { return nullptr; }

 protected:
  ~Evaluator() = default;
};

/// That of the CPU, which is there before main; defined in cpu/.
extern Evaluator& cpu_evaluator;
/// That of a device which is not the CPU. Fails, saying what is missing, if there is none.
Evaluator& device_evaluator(Device device);
/// That of a device, for what must be computed now.
inline Evaluator& evaluator_of(Device device) {
  return device.is_cpu() ? cpu_evaluator : device_evaluator(device);
}
/// The device brings its own; see tensor/device_memory.h.
void provide(Device device, Evaluator* evaluator);

/// The recorder that is open on this thread, else that of the device.
inline Evaluator& evaluator(Device device) {
  return this_context.recorder ? *this_context.recorder : evaluator_of(device);
}

inline void copy_elements(const Tensor& target, const Tensor& source) {
  const Device device = target.device();
  evaluator(device.is_cpu() ? source.device() : device).copy(target, source);
}

}  // namespace grapnel
