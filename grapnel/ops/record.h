/// Seams between ops and capture: declared here, defined in capture/, so that ops/ need not know
/// the recorder.
///
/// While a recorder is open on this thread, it is the evaluator: a call computes nothing and is
/// appended to the trace, and its results are pending tensors (see Note [Pending storage] in
/// tensor/storage.h). Values are computed when the recorder flushes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "grapnel/ops/evaluator.h"

namespace grapnel {

struct AutogradMeta;

/// A step of the library's own that a recording keeps in its place and does not look into, such as
/// sending a bucket or looking for NaN. Calls `fn(inputs)`, or records that the graph will. The first
/// `outputs` inputs say what the results look like; an undefined result means "as the input". `fn` may
/// change its inputs only if nobody reads them but later effects. Unlike opaque() code of the user's it
/// need not run in eager's order among hooks: it runs when the graph comes to it, maybe after hooks that
/// were called later.
variable_list effect(std::function<variable_list(const variable_list&)> fn,
                     const variable_list& inputs, size_t outputs);

namespace record {

/// Whether a recorder is open on this thread. Few have to ask, and say why; everybody else calls ops,
/// which go where they belong, or leaves an undo, which comes to nothing where nothing is recorded.
inline bool active() { return this_context.recorder != nullptr; }

/// Runs what was recorded so far; for ops that need values to know their shapes. `what` says who
/// needs them.
void flush(const char* what);
void add_undo(std::function<void()> undo);
/// Runs `undo` if what is recorded from here on does not run: it is given up, or its graph fails
/// before. Nothing happens where nothing is recorded. `undo` must not hold on to pending tensors,
/// which would look alive: see on_undo_of.
template <class F>
void on_undo(F&& undo) {
  if (active()) add_undo(std::forward<F>(undo));
}
/// An undo that has to be made first: `make()` where something is recorded, nothing elsewhere.
template <class Make>
std::function<void()> undo_from(Make&& make) {
  return active() ? std::function<void()>(make()) : std::function<void()>();
}
void add_undo_of(const Tensor& value, std::function<void(Tensor)> restore);
/// on_undo for something that held `value`, which may be pending: what `make()` returns gets it back,
/// or an undefined tensor if it was never computed, and must not hold on to it itself. See Note
/// [Failing graphs] in capture/run_log.h.
template <class Make>
void on_undo_of(const Tensor& value, Make&& make) {
  if (active()) add_undo_of(value, make());
}
/// on_undo that counts only until the graph runs. It may hold on to anything.
void on_give_up(std::function<void()> undo);
/// Whether a tensor will never be computed: what was recorded failed, or was given up.
bool is_lost(const Tensor& t);

/// Keeps what a recorded call needs until it has run.
void keep(std::shared_ptr<const void> what);
/// The same for a call of user code that the recording does not enter.
void keep_opaque(std::shared_ptr<const void> what);
/// Called before code of the user (a traced hook, an unpack hook, a user's node) is entered: opaque
/// calls recorded before run first, so that user code runs in eager's order.
void before_user_code();
/// Called before grad() of a tensor becomes another tensor. Opaque calls that were recorded with
/// this tensor as an argument run first: they may ask for its gradient, and have to find the one of
/// their turn.
void before_grad_is_replaced(const AutogradMeta& tensor);
/// The hook of this thread that is being shown the memory of `t` and may not write to it, as
/// messages name it; empty if there is none.
std::string who_looks_at(const Tensor& t);

/// Whether a backward pass is being walked on this thread.
inline bool walking() { return this_context.walks > 0; }

/// How many of the storage's owners are the open trace.
uint32_t holds(const Storage& storage);

/// Names the reader in messages about values that are read while recording.
class Reading {
 public:
  explicit Reading(const char* what) : outer_(this_context.reader) {
    if (!outer_) this_context.reader = what;
  }
  ~Reading() { this_context.reader = outer_; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  static const char* reader() { return this_context.reader; }

 private:
  const char* outer_;
};

/// While it lives, this thread computes at once even if a recorder is open.
class Suspend {
 public:
  Suspend() : outer_(this_context.recorder) { this_context.recorder = nullptr; }
  ~Suspend() { this_context.recorder = outer_; }
  Suspend(const Suspend&) = delete;
  Suspend& operator=(const Suspend&) = delete;

 private:
  Evaluator* outer_;
};

}  // namespace record
}  // namespace grapnel
