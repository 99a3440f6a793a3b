/// RunLog: how far a graph has got, and what is to be taken back if it gets no further.
///
/// Note [Failing graphs]
/// A graph that fails while it runs leaves what eager mode leaves when the same call fails: what
/// was recorded before that call has happened, and nothing that was recorded behind it.
///   - Memory that somebody else can see is written in the order of the trace, and never ahead of
///     a call that can fail: see Note [What is seen] in compile/plan.h.
///   - What happens without a call (a gradient that is put into its place, a counted step, a
///     generator that moves on, a version) happened while it was recorded. Whoever did it left an
///     undo, which knows how many calls had been recorded by then. Those behind the failing call
///     are run, last one first; those before it are dropped as soon as the graph has come so far,
///     so that they keep nothing alive.
///   - An undo that puts back something the graph itself computes holds no tensor, since that would
///     look alive. The trace says how long such a slot has to last (Trace::holds), which is as long
///     as eager mode keeps it.
/// A graph that never began (it could not be compiled) has not happened at all.
#pragma once

#include <functional>
#include <vector>

#include "grapnel/base/context.h"
#include "grapnel/capture/trace.h"

namespace grapnel::capture {

struct Undo {
  uint32_t call;                 ///< so many calls had been recorded
  std::function<void()> fn = {};
  /// Instead of fn: puts back what lies in this slot, or nothing if it is not there.
  SlotId slot = kNone;
  uint32_t version = 0;  ///< what it had
  std::function<void(const StoragePtr&)> restore = {};
};

class RunLog {
 public:
  /// Watches the run of `trace` on this thread.
  RunLog(Trace& trace, std::vector<Undo> undo);
  ~RunLog() { this_context.run = outer_; }
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// The trace has run up to `call`, which is next.
  static void reach(const Trace& trace, uint32_t call) {
    if (RunLog* const log = this_context.run; log && &log->trace_ == &trace) log->reached(call);
  }
  /// A call that did not run, of a trace that failed.
  static void left_out(Trace& trace, const Instruction& call) noexcept;
  /// Undoes what did not happen.
  void failed() noexcept;

 private:
  StoragePtr result(const Undo& undo);
  void reached(uint32_t call) {
    reached_ = call;
    while (done_ < undo_.size() && undo_[done_].call <= call) undo_[done_++] = {};
  }

  Trace& trace_;
  std::vector<Undo> undo_;
  size_t done_ = 0;  ///< undos that are not needed any more
  uint32_t reached_ = kNone;
  RunLog* const outer_;
};

}  // namespace grapnel::capture
