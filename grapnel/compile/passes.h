/// Passes over a trace before it is planned. None changes a bit of what is computed.
#pragma once

#include <vector>

#include "grapnel/capture/trace.h"

namespace grapnel::compile_detail {

/// Which passes run; all do unless a test or a search for a bug switches one off.
struct PassOptions {
  bool dead_code = true;
  bool common_subexpressions = true;
  bool fusion = true;
  bool background_kernels = true;  ///< start interpreted and switch to machine code when it is there
};
PassOptions& pass_options();

/// What the passes found, for every trace of one key.
struct Simplified {
  std::vector<bool> skipped;  ///< calls that need not run
  /// Slots whose values another slot has already: read that one instead.
  std::vector<std::pair<capture::SlotId, capture::SlotId>> same;
};
Simplified simplify(const capture::Trace& trace, const PassOptions& options);

/// Makes values over slots that have a twin look at the twin.
void redirect(capture::Trace& trace, const Simplified& simplified);

}  // namespace grapnel::compile_detail
