/// Seams between ops and capture: declared here, defined in capture/, so that ops/ need not know
/// the recorder.
///
/// While a recorder is open on this thread, it is the evaluator: a call computes nothing and is
/// appended to the trace, and its results are pending tensors (see Note [Pending storage] in
/// tensor/storage.h). Values are computed when the recorder flushes.
#pragma once

#include <functional>
#include <memory>

#include "grapnel/ops/evaluator.h"

namespace grapnel::record {

/// Whether a recorder is open on this thread.
inline bool active() { return current != nullptr; }

/// Runs what was recorded so far; for ops that need values to know their shapes. `what` says who
/// needs them.
void flush(const char* what);
void add_undo(std::function<void()> undo);
/// Runs `undo` if what is recorded from here on does not run: it is given up, or its graph fails
/// before. Nothing happens where nothing is recorded. `undo` must not hold on to pending tensors,
/// which would look alive: see on_failure.h.
template <class F>
void on_undo(F&& undo) {
  if (active()) add_undo(std::forward<F>(undo));
}
/// Keeps what a recorded call needs until it has run.
void keep(std::shared_ptr<const void> what);
/// The same for a call of user code that the recording does not enter.
void keep_opaque(std::shared_ptr<const void> what);
/// Called before code of the user (a traced hook, an unpack hook, a user's node) is entered: opaque
/// calls recorded before run first, so that user code runs in eager's order.
void before_user_code();

/// How many backward passes are being walked on this thread.
extern constinit thread_local int walks [[gnu::tls_model("initial-exec")]];
inline bool walking() { return walks > 0; }

/// How many of the storage's owners are the open trace.
uint32_t holds(const Storage& storage);

/// Names the reader in messages about values that are read while recording.
class Reading {
 public:
  explicit Reading(const char* what) : outer_(current_reader) {
    if (!outer_) current_reader = what;
  }
  ~Reading() { current_reader = outer_; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  static const char* reader() { return current_reader; }

 private:
  static inline constinit thread_local const char* current_reader = nullptr;
  const char* outer_;
};

/// While it lives, this thread computes at once even if a recorder is open.
class Suspend {
 public:
  Suspend() : outer_(current) { current = nullptr; }
  ~Suspend() { current = outer_; }
  Suspend(const Suspend&) = delete;
  Suspend& operator=(const Suspend&) = delete;

 private:
  Evaluator* outer_;
};

}  // namespace grapnel::record
