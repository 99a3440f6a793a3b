/// Evaluator: where a call of an op goes. A device computes it, a recorder writes it down.
///
/// `apply` asks `evaluator()` once and has no other branch. What an op is (ops/) knows nothing of how
/// a device computes it: cpu/ has a function for every op, in a table.
#pragma once

#include "grapnel/ops/op.h"

namespace grapnel {

class Evaluator {
 public:
  /// Memory for a result. What it holds is not known before run().
  virtual Tensor empty(const TensorSpec& spec) = 0;
  /// Computes `out`, which is from empty(), or inputs[0] itself for a call in place. The results of a
  /// view op are views, which are there already: only a recorder cares.
  virtual void run(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> out) = 0;
  /// Writes `source`, broadcast and converted, over the elements of `target`. No history, no version.
  virtual void copy(const Tensor& target, const Tensor& source) = 0;
  /// Copies the values of `t`, row by row, to memory of the host: the one that waits.
  virtual void read(const Tensor& t, void* host) = 0;

 protected:
  ~Evaluator() = default;
};

/// That of a device, for what must be computed now.
Evaluator& evaluator_of(Device device);

namespace record {
/// The recorder that is open on this thread, or null.
extern constinit thread_local Evaluator* current [[gnu::tls_model("initial-exec")]];
}  // namespace record

/// The recorder that is open on this thread, else that of the device.
inline Evaluator& evaluator() {
  return record::current ? *record::current : evaluator_of(Device());
}

inline void copy_elements(const Tensor& target, const Tensor& source) {
  evaluator().copy(target, source);
}

}  // namespace grapnel
