/// RunObserver: told what compiled graphs run, item by item. For tools that draw timelines and
/// graphs; nothing else uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "grapnel/base/context.h"
#include "grapnel/capture/trace.h"

namespace grapnel {

class RunObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// One kernel of several calls, or one call by itself, in the order in which they run.
  struct Item {
    std::span<const uint32_t> calls;  ///< positions in Trace::calls
    bool kernel = false;
    Time begin = {}, end = {};
  };

  virtual ~RunObserver() = default;
  /// A graph is about to run. The trace is valid until it has.
  virtual void on_graph(const capture::Trace& trace) = 0;
  virtual void on_item(const capture::Trace& trace, const Item& item) = 0;

  /// The observer of this thread, or null. One null check per item is what it costs when there is
  /// none.
  static RunObserver* current() { return this_context.run_observer; }
  static void set_current(RunObserver* observer) { this_context.run_observer = observer; }
};

}  // namespace grapnel
