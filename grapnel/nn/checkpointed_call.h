/// What forward hooks of modules changed in a checkpointed function, for its second run, which
/// calls none of them. See autograd::checkpoint.
#pragma once

#include "grapnel/autograd/recompute.h"
#include "grapnel/nn/module.h"

namespace grapnel::nn::detail {

/// The values that a list of hooks may replace: of the pre-hooks the arguments, of the others the
/// result.
struct HookedValues {
  Args args;
  Kwargs kwargs;
  Value result;

  void visit_tensors(const TensorVisitor& fn);
};

/// One list of hooks of one call, inside a checkpointed function.
class CheckpointedHooks {
 public:
  /// `values` as they are before the hooks. Copies are handles: nothing is computed.
  CheckpointedHooks(autograd::CheckpointRun& run, const void* key, HookedValues values);
  /// After the hooks, the first time: keeps what is different now.
  void leave(HookedValues now);
  /// Instead of the hooks, the second time: what they made of the values. False if they have to be
  /// called again: they made a value of a type of the user's, whose tensors cannot be exchanged.
  bool take();
  HookedValues values;

 private:
  autograd::CheckpointRun& run_;
  const void* key_;
  std::vector<uint32_t> versions_;
};

}  // namespace grapnel::nn::detail
