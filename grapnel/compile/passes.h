/// Passes over a trace before it is planned. None changes a bit of what is computed.
#pragma once

#include <vector>

#include "grapnel/base/system_memory.h"
#include "grapnel/capture/trace.h"

namespace grapnel::compiler {

/// The steps from a trace to an executable.
enum class Stage : uint8_t { none, passes, plan, kernels };

/// Which passes run; all do unless a test or a search for a bug switches one off.
struct PassOptions {
  bool dead_code = true;
  bool common_subexpressions = true;
  bool copies = true;   ///< read the original of a copy that never changes
  bool algebra = true;  ///< steps that undo or repeat each other
  bool fusion = true;
  bool sweeps = true;     ///< run neighbouring groups span by span
  bool epilogues = true;  ///< run what follows a product or convolution on its tiles
  bool prologues = true;  ///< compute operands of products piece by piece
  bool looks = true;      ///< let sums that nobody waits for share the pass of somebody else
  /// Start interpreted and switch to machine code when it is there.
  bool background_kernels = true;
  /// Groups without reductions that move more than this store their results past the caches.
  int64_t stream_bytes = base::last_level_cache();
  Stage fails = Stage::none;  ///< for tests: the step that fails
};
PassOptions& pass_options();

/// What the passes found, for every trace of one key.
struct Simplified {
  std::vector<bool> skipped;  ///< calls that need not run
  /// Slots whose values another slot has already: read that one instead.
  std::vector<std::pair<capture::SlotId, capture::SlotId>> same;
};
Simplified simplify(const capture::Trace& trace, const PassOptions& options);
/// Throws InternalError unless what the passes found fits the trace: twins are of one size, nothing
/// that is needed is skipped.
void verify(const capture::Trace& trace, const Simplified& simplified);

/// Makes values over slots that have a twin look at the twin.
void redirect(capture::Trace& trace, const Simplified& simplified);

}  // namespace grapnel::compiler
