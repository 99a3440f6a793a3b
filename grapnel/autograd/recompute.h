/// Activation checkpointing: trades memory for time by running a part of the forward pass again
/// during backward.
#pragma once

#include <any>
#include <functional>

#include "grapnel/autograd/saved_variable.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::autograd {

using CheckpointFn = std::function<variable_list(const variable_list&)>;

/// What a recomputation does besides computing.
struct CheckpointOptions {
  /// Call the forward hooks of modules once more in the recomputation.
  bool hooks_again = false;
};

/// Runs `fn(inputs)` without keeping the tensors it saves; the first node of it that runs backward
/// runs `fn` again: with the same random numbers, and in the scopes (Autocast, recording) that were
/// open the first time. `fn` must do the same both times. It may use further tensors that require
/// grad (parameters).
///
/// Hooks fire as without checkpointing: those of tensors, nodes and parameters once per pass, those
/// of modules once per call. The recomputation calls no module hooks; where one replaced arguments
/// or a result, what it returned was kept and stands there again. With `hooks_again` they are
/// called again, and nothing is kept for them. Plain code in `fn`, pack hooks of scopes inside `fn`
/// included, runs twice.
variable_list checkpoint(CheckpointFn fn, const variable_list& inputs,
                         const CheckpointOptions& options = {});

/// The same for one tensor in, one out.
template <class F>
Tensor checkpoint(F fn, const Tensor& input, const CheckpointOptions& options = {}) {
  return checkpoint(
      CheckpointFn([fn](const variable_list& in) mutable { return variable_list{fn(in[0])}; }),
      variable_list{input}, options)[0];
}

/// What code with hooks of its own around `fn` needs to know: modules call theirs only once, and
/// leave behind what hooks changed.
class CheckpointRun {
 public:
  /// The innermost checkpointed function that runs on this thread; null if there is none, or if its
  /// hooks are called again.
  static CheckpointRun* current() { return this_context.checkpoint; }
  /// Whether `fn` runs for the second time.
  virtual bool again() const = 0;
  /// The first time: keeps something for the second, where take() with the same key returns what
  /// was left under it, in the same order; nothing if there is no more.
  virtual void leave(const void* key, std::any what) = 0;
  virtual std::any take(const void* key) = 0;

  /// While it lives, this thread runs no checkpointed function, and what is saved is kept as
  /// anywhere else: what hooks compute is not computed again.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    CheckpointRun* const paused_;
    std::vector<SavedTensorHookPair> pairs_;
  };

 protected:
  explicit CheckpointRun(CheckpointRun* outer) : outer_(outer) {}
  ~CheckpointRun() = default;
  CheckpointRun* outer_;  ///< the first time
  size_t place_ = 0;      ///< of its pair in the thread's stack of saved-tensor hooks
};

}  // namespace grapnel::autograd
