/// Scopes that switch recording on and off, on the calling thread.
#pragma once

#include "grapnel/ops/tape.h"

namespace grapnel {

/// Switches recording of gradients on or off for a scope.
class AutoGradMode {
 public:
  explicit AutoGradMode(bool enabled) : before_(GradMode::is_enabled()) {
    GradMode::set_enabled(enabled);
  }
  ~AutoGradMode() { GradMode::set_enabled(before_); }
  AutoGradMode(const AutoGradMode&) = delete;
  AutoGradMode& operator=(const AutoGradMode&) = delete;

 private:
  bool before_;
};

/// Nothing is recorded while it lives.
class NoGradGuard : public AutoGradMode {
 public:
  NoGradGuard() : AutoGradMode(false) {}
};

/// Recording is on while it lives, also inside a hook.
class EnableGradGuard : public AutoGradMode {
 public:
  EnableGradGuard() : AutoGradMode(true) {}
};

/// Nothing is recorded while it lives, and tensors made in it can never be recorded later.
class InferenceGuard {
 public:
  explicit InferenceGuard(bool enabled = true)
      : grad_(!enabled && GradMode::is_enabled()), before_(InferenceMode::is_enabled()) {
    InferenceMode::set_enabled(enabled);
  }
  ~InferenceGuard() { InferenceMode::set_enabled(before_); }
  InferenceGuard(const InferenceGuard&) = delete;
  InferenceGuard& operator=(const InferenceGuard&) = delete;

 private:
  AutoGradMode grad_;
  bool before_;
};

}  // namespace grapnel
