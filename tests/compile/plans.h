/// What passes and planner make of a function.
#pragma once

#include "grapnel/capture/recorder.h"
#include "grapnel/compile/passes.h"
#include "grapnel/compile/plan.h"
#include "tests/compile/backends.h"

namespace grapnel {

struct Planned {
  capture::Trace trace;
  compiler::Simplified simplified;
  compiler::Plan plan;

  /// The ops that run, in order; those of one kernel in brackets, those of one sweep in braces, ">"
  /// behind a prologue.
  std::string str() const {
    std::string text;
    size_t left = 0;
    for (const compiler::Item& item : plan.items) {
      if (!text.empty()) text += ' ';
      if (item.sweep >= 0) {
        left = plan.sweeps[static_cast<size_t>(item.sweep)].parts.size();
        text += '{';
      }
      if (item.group < 0) {
        text += trace.calls[item.call].op->name;
      } else {
        text += '[';
        bool first = true;
        for (const uint32_t call : plan.groups[static_cast<size_t>(item.group)].calls) {
          if (!first) text += ' ';
          first = false;
          text += trace.calls[call].op->name;
        }
        text += item.prologue ? "]>" : "]";
      }
      if (left > 0 && --left == 0) text += '}';
    }
    return text;
  }
};

/// Records the function, which returns what stays alive, and plans it with the present
/// pass_options().
template <class Fn>
Planned planned(Fn&& fn) {
  struct Sink final : record::Sink {
    Planned result;
    void run(capture::Trace& trace) override {
      const compiler::PassOptions& options = compiler::pass_options();
      result.simplified = simplify(trace, options);
      verify(trace, result.simplified);
      result.trace = trace;
      redirect(result.trace, result.simplified);
      result.plan = compiler::make_plan(
          result.trace, result.simplified.skipped,
          {options.fusion, options.sweeps, options.epilogues, options.prologues, options.looks});
      verify(result.trace, result.simplified.skipped, result.plan);
      result.trace.held.assign(result.trace.slots.size(), nullptr);
    }
    void on_break(const record::Break&, const capture::Trace&) override {}
  } sink;
  record::RecordScope scope(sink);
  const auto alive = fn();
  scope.finish();
  return std::move(sink.result);
}

/// Sets a switch for the time of a test.
class WithPasses {
 public:
  explicit WithPasses(void (*set)(compiler::PassOptions&))
      : before_(compiler::pass_options()) {
    set(compiler::pass_options());
  }
  ~WithPasses() { compiler::pass_options() = before_; }
  WithPasses(const WithPasses&) = delete;
  WithPasses& operator=(const WithPasses&) = delete;

 private:
  const compiler::PassOptions before_;
};

}  // namespace grapnel
