/// Lines of Python's, for messages.
///
/// A line is numbered when something is recorded at it, or a hook is registered there; its text is
/// what a message prints. Frames of the package itself are passed over, so that the user's line
/// shows.
#pragma once

#include <Python.h>

#include <optional>

#include "grapnel/autograd/anomaly.h"
#include "grapnel/base/source_site.h"
#include "grapnel/ops/record.h"

namespace grapnel::python {

/// The line of the user's that runs now, "train.py:12 (step)". Needs the interpreter's lock.
base::SourceSite line_now();

/// While it lives, what is called was called at the user's line. Nothing is looked up unless
/// something is recorded, or anomaly mode or a guard wants to know, or there will be no asking
/// later, because the interpreter's lock is given away.
class LineScope {
 public:
  enum class For : uint8_t { what_is_kept, all };
  explicit LineScope(For what = For::what_is_kept) {
    if (base::current_call_site() != nullptr) return;
    if (what == For::all || record::active() || AnomalyMode::is_enabled() ||
        this_context.observers) [[unlikely]]
      scope_.emplace(line_now().address);
  }

 private:
  std::optional<base::CallSiteScope> scope_;
};

}  // namespace grapnel::python
